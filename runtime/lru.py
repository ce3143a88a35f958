"""A dictionary that forgets what was not used for long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def kept(table: OrderedDict[K, V], key: K, capacity: int, new: Callable[[], V]) -> V:
    """The entry of ``key``, made where it is missing; the longest unused ones go."""
    if key not in table:
        table[key] = new()
    table.move_to_end(key)
    while len(table) > capacity:
        table.popitem(last=False)
    return table[key]
