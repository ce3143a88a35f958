"""Small functions of SGLang that are compiled for a GPU, run as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def eager(original: Callable[..., Any], *args: Any) -> Any:
    """Around a function under ``torch.compile``, which would hold up the first requests for many seconds
    on a few cores, needs a C++ compiler where the server runs, and saves microseconds."""
    with torch.compiler.set_stance("force_eager"):
        return original(*args)
