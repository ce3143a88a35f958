"""Shapes of values: ``2023-03-26`` and ``1999-12-01`` have the shape ``0000-00-00``."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_SHAPED = 40
MAX_DESCRIPTION = 1000
"""Characters of a description in which a shape is looked for."""
_DIGIT = re.compile(r"[0-9]")
_STRFTIME = re.compile(r"%[YmdHMS](?:[-/:. T]?%[YmdHMS])+")
_LETTERS = re.compile(r"Y{4}[-/.]M{2}[-/.]D{2}(?:[ T]HH:mm(?::ss)?)?", re.IGNORECASE)
_EXAMPLE = re.compile(r"\b\d{1,4}([-/.:])\d{1,2}(?:\1\d{1,4})?\b")
_FORMATS = {"date": "0000-00-00", "date-time": "0000-00-00T00:00:00", "time": "00:00:00"}


@lru_cache(maxsize=4096)
def shape_of(text: str) -> str | None:
    """Digits as ``0``, other marks as they are; ``None`` for text without digits or with words."""
    if len(text) > MAX_SHAPED or not _DIGIT.search(text) or re.search(r"[^\W\d_]{2}", text):
        return None
    return _DIGIT.sub("0", text)


def shape_in(text: str) -> str | None:
    """The shape that a parameter's description asks for (``Format: %Y-%m-%d``, an example)."""
    return _shape_in(text[:MAX_DESCRIPTION])


@lru_cache(maxsize=4096)
def _shape_in(text: str) -> str | None:
    if found := _STRFTIME.search(text):
        return re.sub(r"%[mdHMS]", "00", found[0].replace("%Y", "0000"))
    if found := _LETTERS.search(text):
        return re.sub(r"[A-SU-Za-z]", "0", found[0].replace("t", "T"))
    found = _EXAMPLE.search(text)
    return _DIGIT.sub("0", found[0]) if found else None


def shape_of_format(name: str) -> str | None:
    """The shape of a JSON Schema ``format``."""
    return _FORMATS.get(name)


def marks_after(shape: str, written: str) -> str:
    """The marks that ``shape`` has where ``written`` stops, up to the next digit."""
    rest = rest_of(shape, written)
    if rest is None:
        return ""
    digit = rest.find("0")
    return rest if digit < 0 else rest[:digit]


def rest_of(shape: str, written: str) -> str | None:
    """What of ``shape`` is missing behind ``written``; ``None`` where it has another shape."""
    so_far = _DIGIT.sub("0", written)
    return shape[len(so_far) :] if shape.startswith(so_far) else None
