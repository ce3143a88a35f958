"""What the records of a log come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.history.log import MAGIC, bodies
from sglang_toolspec.runtime.history.ranking import standing
from sglang_toolspec.runtime.history.records import (
    ADDED,
    CHANGED,
    STATE_BYTES,
    Stored,
    Unusable,
    added,
    apply_state,
    kind_and_id,
    read_added,
)


def replay(file: BinaryIO, capacity: int) -> tuple[list[Stored], int]:
    """The entries that are left after all records, and where the last whole record ends.

    Holds at most twice ``capacity`` at a time, whatever the file says: the least useful ones go.
    """
    live: dict[int, Stored] = {}
    dim, end = 0, len(MAGIC)
    for body, end in bodies(file):  # noqa: B007 - used after the loop
        kind, id_ = kind_and_id(body)
        if kind == ADDED:
            live[id_] = read_added(body)
            dim = dim or len(live[id_].row)
            if len(live[id_].row) != dim:
                raise Unusable(f"its log holds vectors of {dim} and of {len(live[id_].row)} numbers")
            if len(live) > 2 * capacity:
                live = {item.entry.id: item for item in most_useful(list(live.values()), capacity)}
        elif kind == CHANGED and id_ in live:
            apply_state(body, live[id_].entry)
        else:
            live.pop(id_, None)
    return list(live.values()), end


def most_useful(stored: Sequence[Stored], capacity: int) -> list[Stored]:
    return sorted(stored, key=lambda item: (standing(item.entry, capacity), item.entry.id))[-capacity:]


def copy_live(
    source: Callable[[], BinaryIO], write: Callable[[bytes], object], keep: Callable[[Entry], bool]
) -> int:
    """Write one record for each entry of a log that is left and that ``keep`` is true of.

    Returns how many there are. ``source`` opens the log; it is read twice, so that memory holds no
    more than a few numbers for each entry.
    """
    last_state: dict[int, bytes] = {}
    with source() as file:
        for body, _ in bodies(file):
            kind, id_ = kind_and_id(body)
            if kind == ADDED or (kind == CHANGED and id_ in last_state):
                last_state[id_] = body[:STATE_BYTES]
            else:
                last_state.pop(id_, None)
    copied = 0
    with source() as file:
        for body, _ in bodies(file):
            kind, id_ = kind_and_id(body)
            if kind != ADDED or (state := last_state.pop(id_, None)) is None:
                continue
            stored = read_added(body)
            apply_state(state, stored.entry)
            if keep(stored.entry):
                write(added(stored.entry, stored.row).data)
                copied += 1
    return copied
