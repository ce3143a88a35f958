"""Matrix products of few rows in float32, by oneDNN where it beats the default.

``torch.nn.functional.linear`` sends float32 to MKL, which on many CPUs without AVX-512
makes a product of 16 rows cost several times what oneDNN needs for it. A verify step is
such a product, so it decides what speculation is worth there. The values are the same up
to float32 rounding.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn.functional import linear

logger = logging.getLogger(__name__)

MAX_PACKED_ROWS = 64
_PACKED = "_toolspec_packed"
_WORTH_IT = 1.3


def apply_linear(original: Callable[..., Any], method: Any, layer: Any, x: Tensor, bias: Any = None) -> Any:
    """Around ``UnquantizedLinearMethod.apply``."""
    if not _eligible(layer, x):
        return original(method, layer, x, bias)
    return few_row_linear(layer, x, bias)


def lm_head(
    original: Callable[..., Any], processor: Any, hidden: Tensor, head: Any, *args: Any, **kw: Any
) -> Any:
    """Around ``LogitsProcessor._compute_lm_head``; anything but a plain head goes to the original."""
    plain = all(v is None for v in (*args, *kw.values())) and not hasattr(head, "set_lora")
    if not plain or not _eligible(head, hidden):
        return original(processor, hidden, head, *args, **kw)
    return few_row_linear(head, hidden, None)


def few_row_linear(layer: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """``linear(x, layer.weight, bias)`` by oneDNN.

    The weight is packed once per layer, for products of 2 to ``MAX_PACKED_ROWS`` rows, as
    long as memory allows. One row reads each weight once, which is faster where it lies in order.
    """
    rows = x.numel() // x.shape[-1]
    weight = _packed(layer) if 1 < rows <= MAX_PACKED_ROWS else None
    return torch.ops.mkldnn._linear_pointwise(
        x, layer.weight if weight is None else weight, bias, "none", [], ""
    )


def forget_packed(result: Any, *args: Any, **kw: Any) -> Any:
    """After a weight update: weights change in place, so a packed copy would go stale unseen."""
    _generation[0] += 1
    return result


_generation = [0]


def _eligible(layer: Any, x: Tensor) -> bool:
    weight = getattr(layer, "weight", None)
    return (
        isinstance(weight, Tensor)
        and weight.dtype == torch.float32 == x.dtype
        and weight.dim() == 2
        and x.numel() > 0
        and onednn_is_faster()
    )


def _packed(layer: Any) -> Tensor | None:
    known = layer.__dict__.get(_PACKED)
    weight = layer.weight
    state = (weight.data_ptr(), _generation[0])
    if known is not None and known[0] == state:
        return known[1]
    if psutil.virtual_memory().available < 4 * weight.numel() * weight.element_size():
        return None
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 16)
    layer.__dict__[_PACKED] = (state, packed)
    return packed


@cache
def onednn_is_faster() -> bool:
    """Measured once per process on a product of 16 rows (about 0.1 s).

    The two take turns, because a server starts several processes at once: measured one after
    the other, whichever met the busier moment lost, and with it every step of that server.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    weight, x = torch.randn(4096, 1024), torch.randn(16, 1024)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
    default, onednn = _best_times(
        lambda: linear(x, weight),
        lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], ""),
    )
    faster = default > _WORTH_IT * onednn
    logger.info(
        "toolspec: 16-row float32 products: default %.2f ms, oneDNN %.2f ms, using %s",
        default * 1e3, onednn * 1e3, "oneDNN" if faster else "the default",
    )  # fmt: skip
    return faster


def _best_times(*runs: Callable[[], Any], repeats: int = 20) -> list[float]:
    best = [math.inf] * len(runs)
    for _ in range(repeats):
        for at, run in enumerate(runs):
            began = time.perf_counter()
            run()
            best[at] = min(best[at], time.perf_counter() - began)
    return best
