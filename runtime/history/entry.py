"""Replies of the past: one that is offered to the history, and one that it holds."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.history.vectors import unit_vector

MAX_TOKENS = 4096
"""Of one reply; what comes after them is not kept."""
MAX_TOOLS = 256
"""Names kept with one reply, the first."""
MAX_NAME = 256
MAX_TENANT = 4096
"""Characters of a tool's name and of a tenant; what is longer is refused."""
MAX_COUNT = 1 << 62


@dataclass(slots=True, eq=False)
class Entry:
    """A reply that the history holds. Only the history changes it; entries are told apart by ``is``.

    ``tokens`` are the reply's token ids, int32, read-only. ``used`` is how many tokens of drafts made
    from it were accepted, ``drafted`` how many such drafts were credited. ``created`` is in seconds
    since 1970.
    """

    id: int
    tenant: str
    tokens: NDArray[np.int32] = field(repr=False)
    tools: tuple[str, ...]
    created: float
    used: int = 0
    drafted: int = 0
    stamp: int = 0
    """How many entries had been added when this one was last added, refreshed or used."""
    slot: int = -1
    """Where its vector lies in its tenant's table; -1 once it has left the history."""


class Neighbour(NamedTuple):
    """``similarity`` is the cosine of the angle between the vectors, -1 to 1."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class Call:
    """A reply that may enter a history; made by ``checked_call`` only."""

    tenant: str
    vector: NDArray[np.float32]
    """[dim], of length 1."""
    tokens: NDArray[np.int32]
    tools: tuple[str, ...]
    created: float
    used: int
    drafted: int


def checked_call(
    tenant: Any, vector: Any, tokens: Any, tools: Any, created: float, used: int = 0, drafted: int = 0
) -> Call | None:
    """``None`` where anything is not what it should be: all of it comes from requests or files."""
    direction, ids, names = unit_vector(vector), _token_ids(tokens), _tool_names(tools)
    if direction is None or ids is None or names is None or not is_tenant(tenant):
        return None
    counts = (used, drafted)
    if not all(type(n) is int and 0 <= n <= MAX_COUNT for n in counts) or not math.isfinite(created):
        return None
    return Call(tenant, direction, ids, names, float(created), *counts)


def is_tenant(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TENANT


def _token_ids(tokens: Any) -> NDArray[np.int32] | None:
    try:
        ids = np.asarray(tokens[:MAX_TOKENS])
    except (TypeError, ValueError, KeyError, RuntimeError):
        return None
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        return None
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        return None
    kept = ids.astype(np.int32)
    kept.flags.writeable = False
    return kept


def _tool_names(tools: Any) -> tuple[str, ...] | None:
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        return None
    names = tools[:MAX_TOOLS]
    if not all(isinstance(name, str) and len(name) <= MAX_NAME for name in names):
        return None
    # Few names stand in many entries; each is kept once.
    return tuple(sys.intern(str(name)) for name in names)
