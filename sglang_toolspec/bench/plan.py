"""What is asked in which order: passes over the rows of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sglang_toolspec.bench.request import Asking, Request, request_for
from sglang_toolspec.bench.workloads import Workload
from sglang_toolspec.errors import UserError


@dataclass(frozen=True)
class Key:
    """Names one measurement of a variant."""

    workload: str
    concurrency: int
    repeat: int
    row: str


@dataclass(frozen=True)
class Pass:
    """A stream of requests, asked in order, that starts with nothing learned but the ``warm`` ones.

    ``salt`` keeps it apart from every other stream in whatever a server learns.
    ``plain_every``: see ``rows_of``.
    """

    workload: str
    concurrency: int
    repeat: int
    salt: str
    rows: tuple[str, ...]
    warm: tuple[str, ...] = ()

    plain_every: int = 1

    def rows_of(self, plain: bool) -> tuple[str, ...]:
        """What a variant is asked: ``plain`` decoding, which learns nothing, every so many rows."""
        return self.rows[:: self.plain_every] if plain else self.rows

    def key(self, row: str) -> Key:
        return Key(self.workload, self.concurrency, self.repeat, row)


def requests_of(workload: Workload, asking: Asking) -> dict[str, Request]:
    """By row id. Raises ``UserError`` where ``asking`` does not fit a row."""
    return {row.id: request_for(row, asking) for row in workload.rows}


def passes(
    requests: Mapping[str, Mapping[str, Request]],
    concurrencies: Sequence[int],
    repeats: int,
    history: str,
    plain_every: int = 1,
) -> list[Pass]:
    """Over the ``requests`` of each workload, repeat by repeat.

    ``history``: ``cold`` starts with nothing. ``warm`` has seen the other half of the rows, and no request
    finds its own reply: of equal ones the first alone is measured. ``repeated`` has seen every row once.
    """
    return [
        Pass(name, concurrency, repeat, f"{name}/{concurrency}/{repeat}/{fold}", rows, warm, plain_every)
        for repeat in range(repeats)
        for name, of_rows in requests.items()
        for concurrency in concurrencies
        for fold, (rows, warm) in enumerate(_streams(name, of_rows, history))
    ]


def _streams(
    name: str, requests: Mapping[str, Request], history: str
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pairs of the rows to measure and those to be asked before."""
    everything = tuple(requests)
    if history == "cold":
        return [(everything, ())]
    if history == "repeated":
        return [(everything, everything)]
    different: dict[str, str] = {}
    for row, request in requests.items():
        different.setdefault(request.digest, row)
    if len(different) == 1:
        raise UserError(f"a warm history needs two different requests, and the workload {name} has one")
    rows = tuple(different.values())
    even, odd = rows[::2], rows[1::2]
    return [(even, odd), (odd, even)]
