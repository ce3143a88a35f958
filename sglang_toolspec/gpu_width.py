"""The width that was the fastest for a model on a GPU: what CUDA graphs are captured for.

``bench gpu-check`` measures it and keeps it in the cache folder, ``serve`` looks it up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sglang_toolspec.model import cache_dir

FILE = "gpu-widths.json"
MAX_WIDTH = 1024


def known(gpu: str, model: str) -> int | None:
    """Nodes of a tree, root included; ``None`` where nothing was measured. A damaged file says nothing."""
    try:
        width = _read(cache_dir() / FILE)[gpu][model]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return width if isinstance(width, int) and 1 <= width <= MAX_WIDTH else None


def keep(gpu: str, model: str, width: int) -> Path:
    """The file in which ``serve`` finds it, written at once or not at all."""
    file = cache_dir() / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        widths = _read(file)
        widths[gpu] = {**widths.get(gpu, {}), model: width}
    except (OSError, ValueError, TypeError):  # none yet, or one that nobody can read
        widths = {gpu: {model: width}}
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(widths, indent=1) + "\n")
    draft.replace(file)
    return file


def gpu_name() -> str:
    """Of the GPU that PyTorch sees first; empty without CUDA."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))
