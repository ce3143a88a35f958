"""Draft models of EAGLE, EAGLE3 and STANDALONE: what a server is told about one, and what a report says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.serve import resolve_model

MODEL_FLAG = "--speculative-draft-model-path"
TOKEN_MAP = "hot_token_id.pt"
"""Tokens that an EAGLE head can draft, beside its weights; EAGLE3 heads hold theirs within."""
TRAINING = "training.json"
"""What ``examples/train_eagle_head.py`` tells about a head."""
CAVEAT = "a small head on a CPU shows the mechanism, not EAGLE's best (see docs/benchmarks.md)"
_MAX_TOLD = 1 << 20


def draft_flags(algorithm: str, model: str) -> tuple[str, ...]:
    """SGLang's flags for ``model``: folder, fetched name or hub name. Raises ``UserError``."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        try:
            folder = Path(resolve_model(model))
        except UserError as error:
            raise UserError(
                f"no draft model for {algorithm}: {error}; give --draft-model {algorithm}=FOLDER_OR_NAME"
            ) from error
    path = str(folder) if folder.is_dir() else model
    flags: tuple[str, ...] = ("--speculative-algorithm", algorithm.upper(), MODEL_FLAG, path)
    if algorithm == "eagle" and (folder / TOKEN_MAP).is_file():
        flags += ("--speculative-token-map", str(folder / TOKEN_MAP))
    return flags


def about(model: str) -> dict[str, Any]:
    """For the report: the model, its files and, of a head that our example trained, how."""
    said: dict[str, Any] = {"model": model, "digest": model_digest(model)}
    told = Path(model) / TRAINING
    if told.is_file() and told.stat().st_size <= _MAX_TOLD:
        try:
            said |= {"training": json.loads(told.read_text()), "caveat": CAVEAT}
        except ValueError as error:
            raise UserError(f"{told} is not valid JSON ({error}); remove it or train again") from error
    return said


def sentence(variant: str, told: Mapping[str, Any]) -> str:
    """``about`` a variant's draft model, for people."""
    parts = [f"{variant} drafts with {told['model']}"]
    if training := told.get("training"):
        epochs = len(training.get("epochs", ()))
        parts.append(f"trained on {training.get('replies')} replies in {epochs} epochs; {told['caveat']}")
    return ", ".join(parts)


def model_digest(model: str) -> str:
    """Of a folder's configuration, and of the names and sizes of its files; empty for a hub name."""
    folder = Path(model)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        if file.suffix in (".json", ".jinja") and size < 1 << 20:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
