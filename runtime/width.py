"""How wide a verify step should be: expected tokens against what the step costs."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from sglang_toolspec.runtime.tree import DraftTree

RECENT = 15
"""Steps of one size of which the median counts."""
FORGET = 256
"""Steps after which a size that was not used is unknown again: a few slow steps would else keep
it from ever being used, and measured, again."""
PRIOR_PER_ROW = 0.05
"""What one more row costs of a one-row step, before anything was measured."""
FIRST_STEPS = 6
"""Steps of a new server in which it learns what the narrowest, a middle and the widest step cost."""
_MIDDLE = 8
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class StepCosts:
    """Seconds of a verify step by its rows (requests times width); mutable, kept fresh."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._used: dict[int, int] = {}
        """The last step of each size."""
        self._known: list[tuple[int, float]] = []
        self._steps = 0

    @classmethod
    def of(cls, measured: Iterable[tuple[int, float]]) -> StepCosts:
        """What another server ``measured``, rows and seconds."""
        costs = cls()
        costs._known = _rising(measured)
        return costs

    @property
    def measured(self) -> list[tuple[int, float]]:
        """Rows and seconds of the sizes seen so far."""
        return list(self._known)

    def note(self, rows: int, seconds: float) -> None:
        """A step of ``rows`` rows took ``seconds``."""
        size = _size(rows)
        self._steps += 1
        if size in self._used:
            self._seconds[size].append(seconds)
        else:  # the first step of a size also warms it up
            self._seconds[size] = deque(maxlen=RECENT)
        self._used[size] = self._steps
        for stale in [n for n, step in self._used.items() if self._steps - step > FORGET]:
            del self._used[stale], self._seconds[stale]
        self._known = _rising((n, median(recent)) for n, recent in self._seconds.items() if recent)

    def seconds(self, rows: int) -> float:
        """Expected cost; in units of a one-row step while nothing was measured."""
        if not self._known:
            return 1.0 + PRIOR_PER_ROW * (rows - 1)
        at = bisect_left(self._known, (rows, 0.0))
        if at == 0:
            size, cost = self._known[0]
            return cost * (1 + PRIOR_PER_ROW * (rows - 1)) / (1 + PRIOR_PER_ROW * (size - 1))
        low, low_cost = self._known[at - 1]
        if at == len(self._known):
            return low_cost * (1 + PRIOR_PER_ROW * (rows - 1)) / (1 + PRIOR_PER_ROW * (low - 1))
        high, high_cost = self._known[at]
        return low_cost + (high_cost - low_cost) * (rows - low) / (high - low)

    def unknown_width(self, requests: int, widest: int) -> int | None:
        """A width that a new server tries for its cost alone; ``None`` after ``FIRST_STEPS``.

        These are mostly steps of SGLang's warm-up request. The second of a size counts (``note``).
        """
        if self._steps >= FIRST_STEPS:
            return None
        widths = (1, min(_MIDDLE, widest), widest)
        return next((width for width in widths if not self._seconds.get(_size(requests * width))), None)

    def best_width(self, trees: Sequence[DraftTree]) -> int:
        """Nodes of each tree, root included, that give the most expected tokens per second.

        Nodes come likeliest first, so a narrower tree is the start of a wider one.
        """
        widest = max(len(tree) for tree in trees)
        best, best_rate, tokens = 1, 0.0, 0.0
        for width in range(1, widest + 1):
            tokens += sum(tree.weights[width - 1] for tree in trees if width <= len(tree))
            rate = tokens / self.seconds(width * len(trees))
            if rate > best_rate:
                best, best_rate = width, rate
        return best


def _size(rows: int) -> int:
    return _SIZES[min(bisect_left(_SIZES, rows), len(_SIZES) - 1)]


def _rising(measured: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Fewer rows never cost more: a slow step that was something else's fault does not count."""
    known, cost = [], float("inf")
    for rows, seconds in sorted(measured, reverse=True):
        cost = min(cost, seconds)
        known.append((rows, cost))
    return known[::-1]
