"""What the options of ``sglang-toolspec bench`` say."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_toolspec.errors import UserError


def listed(value: str) -> list[str]:
    """Of a comma-separated list."""
    return [part.strip() for part in value.split(",") if part.strip()]


def numbers(option: str, value: str) -> list[int]:
    parts = listed(value)
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise UserError(f"{option} takes whole numbers above 0, separated by commas, not '{value}'")
    return [int(part) for part in parts]


def draft_models(pairs: Sequence[str]) -> dict[str, str]:
    """Models by algorithm."""
    models = {}
    for pair in pairs:
        algorithm, equals, model = pair.partition("=")
        if not equals or not model:
            raise UserError(f"--draft-model takes ALGORITHM=MODEL, not '{pair}'")
        models[algorithm] = model
    return models


def model_folder(model: str) -> str:
    """A folder or hub name; the default model, fetched, where none is given."""
    from sglang_toolspec import serve
    from sglang_toolspec.model import DEFAULT_MODEL, fetch

    return serve.resolve_model(model) if model else str(fetch(DEFAULT_MODEL))
