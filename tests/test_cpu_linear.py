"""Products of few rows by oneDNN equal the default's, and follow weight updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from sglang_toolspec.runtime.engine.cpu import linear as cpu_linear


@pytest.fixture(autouse=True)
def _onednn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(cpu_linear, "onednn_is_faster", lambda: True)


def _layer(rows: int = 48, columns: int = 32, dtype: torch.dtype = torch.float32) -> Any:
    return torch.nn.Linear(columns, rows, dtype=dtype)


def _unused(*args: Any, **kw: Any) -> Any:
    raise AssertionError("the original was called")


@pytest.mark.parametrize("shape", [(1, 32), (16, 32), (2, 5, 32), (64, 32), (65, 32)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_equal_the_default(shape: tuple[int, ...], with_bias: bool) -> None:
    layer, x = _layer(), torch.randn(shape)
    bias = layer.bias if with_bias else None
    with torch.no_grad():
        found = cpu_linear.apply_linear(_unused, None, layer, x, bias)
        torch.testing.assert_close(found, linear(x, layer.weight, bias), atol=1e-5, rtol=1e-5)


def test_one_row_takes_the_weight_as_it_is() -> None:
    layer = _layer()
    with torch.no_grad():
        cpu_linear.apply_linear(_unused, None, layer, torch.randn(1, 32))
        assert cpu_linear._PACKED not in layer.__dict__
        cpu_linear.apply_linear(_unused, None, layer, torch.randn(2, 32))
        assert cpu_linear._PACKED in layer.__dict__


def test_a_weight_update_in_place_is_followed() -> None:
    layer, x = _layer(), torch.randn(4, 32)
    with torch.no_grad():
        cpu_linear.apply_linear(_unused, None, layer, x)
        layer.weight.data.copy_(torch.randn_like(layer.weight))
        assert cpu_linear.forget_packed("result") == "result"
        found = cpu_linear.apply_linear(_unused, None, layer, x)
    torch.testing.assert_close(found, linear(x, layer.weight), atol=1e-5, rtol=1e-5)


def test_other_dtypes_empty_inputs_and_quantised_layers_go_to_the_original() -> None:
    def original(*args: Any) -> str:
        return "original"

    bf16 = _layer(dtype=torch.bfloat16)
    assert cpu_linear.apply_linear(original, None, bf16, torch.randn(2, 32).bfloat16()) == "original"
    assert cpu_linear.apply_linear(original, None, _layer(), torch.randn(0, 32)) == "original"
    assert cpu_linear.apply_linear(original, None, object(), torch.randn(2, 32)) == "original"


def test_the_output_layer_takes_the_same_way_unless_it_is_special() -> None:
    head, hidden = _layer(), torch.randn(3, 32)
    with torch.no_grad():
        found = cpu_linear.lm_head(_unused, None, hidden, head, None, out=None)
    torch.testing.assert_close(found, linear(hidden, head.weight), atol=1e-5, rtol=1e-5)
    assert cpu_linear.lm_head(lambda *a, **k: "original", None, hidden, head, torch.zeros(48)) == "original"


def test_a_busy_moment_does_not_decide_which_product_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def lasts(seconds: float) -> None:
        nonlocal now
        busy = now < 30.0
        now += seconds * (4 if busy else 1)

    monkeypatch.setattr(cpu_linear.time, "perf_counter", lambda: now)
    times = cpu_linear._best_times(lambda: lasts(2.0), lambda: lasts(1.0), repeats=10)
    assert times == [2.0, 1.0]
