"""Whatever a log says, reading it ends in entries or in ``Unusable``, within bounds."""

from __future__ import annotations

import io
import struct
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.history.entry import MAX_NAME, MAX_TENANT, MAX_TOKENS, MAX_TOOLS, Entry
from sglang_toolspec.runtime.history.log import MAGIC, bodies
from sglang_toolspec.runtime.history.records import (
    ADDED,
    HEADER,
    MAX_BODY,
    Unusable,
    added,
    changed,
    kind_and_id,
    read_added,
    removed,
)
from sglang_toolspec.runtime.history.replay import copy_live, replay
from sglang_toolspec.runtime.history.vectors import MAX_DIM


def entry(number: int = 1, **more: Any) -> Entry:
    made = Entry(number, "tenant", np.array([1, 2, 3], np.int32), ("tool", "é"), 5.0, 1, 2, stamp=number)
    for name, value in more.items():
        setattr(made, name, value)
    return made


ROW = np.array([0.6, 0.8], np.float32)
BODY = added(entry(), ROW).data[HEADER.size :]


def log_of(*records: bytes) -> io.BytesIO:
    return io.BytesIO(MAGIC + b"".join(records))


def framed(body: bytes) -> bytes:
    """A record whose checksums are right, whatever is in it."""
    lengths = struct.pack("<II", len(body), crc32(body))
    return lengths + struct.pack("<I", crc32(lengths)) + body


def test_a_record_comes_back_as_it_was() -> None:
    stored = read_added(BODY)
    back = stored.entry
    assert (back.id, back.tenant, back.tools, back.created) == (1, "tenant", ("tool", "é"), 5.0)
    assert (back.used, back.drafted, back.stamp, back.slot) == (1, 2, 1, -1)
    assert back.tokens.tolist() == [1, 2, 3]
    assert stored.row.tolist() == ROW.tolist()
    assert stored.size == HEADER.size + len(BODY)


def test_the_largest_entry_fits() -> None:
    largest = entry(
        tenant="\U0001f600" * MAX_TENANT,
        tokens=np.arange(MAX_TOKENS, dtype=np.int32),
        tools=("\U0001f600" * MAX_NAME,) * MAX_TOOLS,
    )
    data = added(largest, np.ones(MAX_DIM, np.int8)).data
    assert len(data) - HEADER.size <= MAX_BODY
    assert read_added(data[HEADER.size :]).entry.tenant == largest.tenant


@given(st.data())
def test_a_forged_body_is_an_entry_within_bounds_or_unusable(data: st.DataObject) -> None:
    body = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))]
    try:
        stored = replay(log_of(framed(bytes(body))), 10)[0]
    except Unusable:
        return
    for item in stored:
        assert item.entry.tokens.min() >= 0
        assert np.isfinite(item.row).all()
        assert np.isfinite(item.entry.created)


@given(st.binary(max_size=200))
def test_any_bytes_after_the_beginning_end_in_records_or_unusable(tail: bytes) -> None:
    try:
        stored, end = replay(log_of(tail), 10)
    except Unusable:
        return
    assert stored == []
    assert end == len(MAGIC)


@pytest.mark.parametrize("field", [0, 4], ids=["dimension", "tokens"])
def test_a_huge_count_is_refused_before_anything_is_made_of_that_size(field: int) -> None:
    body = bytearray(BODY)
    struct.pack_into("<I", body, 41 + field, 2**32 - 1)
    with pytest.raises(Unusable, match="counts are out of range"):
        read_added(bytes(body))


def test_a_huge_length_is_refused_before_it_is_read() -> None:
    lengths = struct.pack("<II", 2**32 - 1, 0)
    with pytest.raises(Unusable, match="damaged at byte 23"):
        list(bodies(log_of(lengths + struct.pack("<I", crc32(lengths)))))


@pytest.mark.parametrize(
    "row", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]], ids=["zero", "nan", "infinite"]
)
def test_a_row_without_a_direction_is_unusable(row: list[float]) -> None:
    with pytest.raises(Unusable, match="impossible contents"):
        read_added(added(entry(), np.array(row, np.float32)).data[HEADER.size :])


def test_vectors_of_two_dimensions_in_one_log_are_unusable() -> None:
    log = log_of(added(entry(1), ROW).data, added(entry(2), np.ones(3, np.float32)).data)
    with pytest.raises(Unusable, match="vectors of 2 and of 3 numbers"):
        replay(log, 10)


def test_a_log_of_more_entries_than_there_is_room_for_keeps_the_most_useful() -> None:
    records = [added(entry(number, used=(number == 3) * 99), ROW).data for number in range(1, 100)]
    stored, _ = replay(log_of(*records), 5)

    kept = [item.entry.id for item in stored]
    assert len(kept) <= 10
    assert 99 in kept


def test_records_about_unknown_entries_change_nothing() -> None:
    log = log_of(changed(entry(7)).data, removed(entry(8)).data, added(entry(1), ROW).data)
    assert [item.entry.id for item in replay(log, 10)[0]] == [1]


def test_copying_writes_one_record_with_the_last_state_of_each_entry() -> None:
    data = b"".join(
        (
            added(entry(1), ROW).data,
            added(entry(2), ROW).data,
            added(entry(3), ROW).data,
            changed(entry(1, used=50)).data,
            removed(entry(2)).data,
            changed(entry(2, used=60)).data,
        )
    )
    target = io.BytesIO()

    assert copy_live(lambda: log_of(data), target.write, lambda e: e.id != 3) == 1

    copied = [body for body, _ in bodies(log_of(target.getvalue()))]
    assert [kind_and_id(body) for body in copied] == [(ADDED, 1)]
    assert read_added(copied[0]).entry.used == 50
