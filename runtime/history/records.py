"""Records of the log: an entry was added, its counters changed, it was removed.

A record is a header (length of the body, CRC-32 of the body, CRC-32 of these two) and a body of fixed
fields and what their counts announce. Numbers are little-endian. Whatever is read may be damaged or
forged: every length is checked before it is used, and a fault makes the log ``Unusable``.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from sglang_toolspec.runtime.history.entry import MAX_COUNT, MAX_TOKENS, MAX_TOOLS, Entry, is_tenant
from sglang_toolspec.runtime.history.vectors import MAX_DIM, Row, row_dtype

ADDED, CHANGED, REMOVED = 1, 2, 3

HEADER = struct.Struct("<III")
_LENGTHS = struct.Struct("<II")
_NAMED = struct.Struct("<BQ")
"""Kind and id; every body begins with them."""
_STATE = struct.Struct("<BQQQQd")
"""Kind, id, stamp, used, drafted, created: the body of CHANGED, and what ADDED begins with."""
STATE_BYTES = _STATE.size
_SIZES = struct.Struct("<IIHH")
"""Of an added entry: dimension, tokens, tools, bytes of the tenant; then tenant, tools, tokens, row."""
_NAME = struct.Struct("<H")

MAX_BODY = 1 << 20
"""More than the largest entry takes."""


class Unusable(Exception):
    """A folder does not hold the history that it should; the text says what is wrong and where."""


@dataclass(frozen=True, slots=True)
class Record:
    """``data`` is framed, as it goes to the file."""

    kind: int
    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry and its vector, as a log holds them, in a record of ``size`` bytes."""

    entry: Entry
    row: Row
    size: int


def added(entry: Entry, row: Row) -> Record:
    tenant = _encoded(entry.tenant)
    tools = [_encoded(name) for name in entry.tools]
    body = b"".join(
        (
            _state(ADDED, entry),
            _SIZES.pack(len(row), len(entry.tokens), len(tools), len(tenant)),
            tenant,
            *(_NAME.pack(len(name)) + name for name in tools),
            entry.tokens.astype("<i4", copy=False).tobytes(),
            row.tobytes(),
        )
    )
    return _record(ADDED, entry, body)


def changed(entry: Entry) -> Record:
    return _record(CHANGED, entry, _state(CHANGED, entry))


def removed(entry: Entry) -> Record:
    return _record(REMOVED, entry, _NAMED.pack(REMOVED, entry.id))


def kind_and_id(body: bytes) -> tuple[int, int]:
    if len(body) < _NAMED.size or not ADDED <= body[0] <= REMOVED:
        raise Unusable("a record of an unknown kind")
    kind, id_ = _NAMED.unpack_from(body)
    if id_ > MAX_COUNT:
        raise Unusable("a record whose number is out of range")
    return kind, id_


def apply_state(body: bytes, entry: Entry) -> None:
    """Set what may change in ``entry`` to what the body of a CHANGED or ADDED record says."""
    if len(body) < _STATE.size:
        raise Unusable("a record that is too short")
    _, _, stamp, used, drafted, created = _STATE.unpack_from(body)
    if max(stamp, used, drafted) > MAX_COUNT or not math.isfinite(created):
        raise Unusable("a record whose counters are out of range")
    entry.stamp, entry.used, entry.drafted, entry.created = stamp, used, drafted, created


def read_added(body: bytes) -> Stored:
    """The entry of an ADDED record."""
    fields = _Fields(body, _STATE.size)
    dim, token_count, tool_count, tenant_bytes = fields.unpack(_SIZES)
    if not (0 < dim <= MAX_DIM and 0 < token_count <= MAX_TOKENS and tool_count <= MAX_TOOLS):
        raise Unusable("a record whose counts are out of range")
    tenant = fields.text(tenant_bytes)
    tools = tuple(sys.intern(fields.text(*fields.unpack(_NAME))) for _ in range(tool_count))
    tokens = np.frombuffer(fields.take(4 * token_count), "<i4")
    dtype = row_dtype(dim)
    row = np.frombuffer(fields.take(dim * dtype.itemsize), dtype)
    has_direction = bool(row.any() and np.isfinite(row).all())
    if fields.left or not is_tenant(tenant) or tokens.min() < 0 or not has_direction:
        raise Unusable("a record with impossible contents")
    entry = Entry(kind_and_id(body)[1], tenant, tokens, tools, created=0.0)
    apply_state(body, entry)
    return Stored(entry, row, HEADER.size + len(body))


class _Fields:
    """Reads a body from front to back."""

    def __init__(self, body: bytes, at: int):
        self._body = body
        self._at = at

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Unusable("a record that is too short")
        self._at += count
        return self._body[self._at - count : self._at]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def text(self, count: int) -> str:
        try:
            return self.take(count).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Unusable("a record whose text is not UTF-8") from error


def _encoded(text: str) -> bytes:
    # A request may hold half a surrogate pair; it must come back as it was.
    return text.encode("utf-8", "surrogatepass")


def _state(kind: int, entry: Entry) -> bytes:
    used, drafted = min(entry.used, MAX_COUNT), min(entry.drafted, MAX_COUNT)
    return _STATE.pack(kind, entry.id, entry.stamp, used, drafted, entry.created)


def _record(kind: int, entry: Entry, body: bytes) -> Record:
    lengths = _LENGTHS.pack(len(body), crc32(body))
    return Record(kind, entry.id, lengths + struct.pack("<I", crc32(lengths)) + body)
