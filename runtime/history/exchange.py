"""A history as lines of JSON, to look at, to keep, or to take elsewhere.

The first line says whose it is, each other one is an entry. Vectors have length 1 and are base64 of
float32 numbers, little-endian.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import numpy as np
from pydantic import ValidationError

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.history.entry import Call, checked_call
from sglang_toolspec.runtime.history.manifest import Fingerprint
from sglang_toolspec.runtime.history.records import Stored
from sglang_toolspec.runtime.history.vectors import VectorCode

FORMAT = "toolspec history 1"
MAX_LINE = 4 << 20
"""Characters; more than the largest entry takes."""
_KEYS = {"tenant", "tools", "tokens", "created", "used", "drafted", "vector"}


def export_lines(fingerprint: Fingerprint, stored: Iterable[Stored]) -> Iterator[str]:
    """Without line ends, the oldest entry first."""
    yield json.dumps({"format": FORMAT, "fingerprint": fingerprint.model_dump()})
    code: VectorCode | None = None
    for item in sorted(stored, key=lambda item: (item.entry.created, item.entry.id)):
        code = code or VectorCode(len(item.row))
        entry = item.entry
        yield json.dumps(
            {
                "tenant": entry.tenant,
                "tools": entry.tools,
                "tokens": entry.tokens.tolist(),
                "created": entry.created,
                "used": entry.used,
                "drafted": entry.drafted,
                "vector": base64.b64encode(code.unit(item.row).astype("<f4").tobytes()).decode(),
            }
        )


def calls_of(stored: Iterable[Stored]) -> Iterator[Call]:
    """The entries of one history as another can take them, the oldest first."""
    code: VectorCode | None = None
    for item in sorted(stored, key=lambda item: (item.entry.created, item.entry.id)):
        code = code or VectorCode(len(item.row))
        entry = item.entry
        unit = code.unit(item.row)
        yield Call(entry.tenant, unit, entry.tokens, entry.tools, entry.created, entry.used, entry.drafted)


def read_header(file: TextIO, name: str) -> Fingerprint:
    """From the first line; raises ``UserError``."""
    value = _read_line(file, f"{name}, line 1")
    try:
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError
        return Fingerprint.model_validate(value.get("fingerprint"))
    except (ValueError, ValidationError) as error:
        raise UserError(f"{name} is not an exported history: its first line must say so") from error


def read_calls(file: TextIO, name: str, dim: int | None) -> Iterator[Call]:
    """From the other lines; raises ``UserError`` with the number of the one that is wrong."""
    number = 1
    while True:
        number += 1
        where = f"{name}, line {number}"
        value = _read_line(file, where)
        if value is None:
            return
        call = _call(value)
        if call is None or (dim is not None and len(call.vector) != dim):
            raise UserError(f"{where} is not an entry of this history; see docs/history.md")
        dim = len(call.vector)
        yield call


def _read_line(file: TextIO, where: str) -> Any:
    """Its JSON value; ``None`` at the end of the file."""
    try:
        line = file.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise UserError(f"{where} is longer than {MAX_LINE} characters")
        return json.loads(line) if line else None
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or set(value) != _KEYS:
        return None
    try:
        vector = np.frombuffer(base64.b64decode(value["vector"], validate=True), "<f4")
        created = float(value["created"])
    except (TypeError, ValueError, OverflowError, binascii.Error):
        return None
    tokens = value["tokens"]
    if not isinstance(tokens, list):
        return None
    return checked_call(
        value["tenant"], vector, tokens, value["tools"], created, value["used"], value["drafted"]
    )
