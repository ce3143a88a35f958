"""How charts look: one colour for each algorithm, SVG whose colours the page decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 7.6
"""Inches of a chart; the page scales it."""
MAX_NAME = 48
"""Characters of a name from a file that stand in a chart."""

# Each of these stands for a variable of the page's style, which has one value for light and one for dark.
INK, MUTED, LINE, PAPER = "#10151b", "#5a6570", "#d3d9df", "#fdfdfc"
_ALGORITHMS = {
    "none": "#7b8591",
    "ngram": "#c9781c",
    "toolspec": "#0b7f86",
    "eagle": "#7456c4",
    "eagle3": "#b23f86",
    "standalone": "#4c8735",
}
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    PAPER: "--paper",
    **{colour: f"--{algorithm}" for algorithm, colour in _ALGORITHMS.items()},
}
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": INK}
"""Of a text behind a bar."""
_SHADES = (1.0, 0.62, 0.4, 0.26)
_MARKERS = "osD^vP"
_LINES = ("-", "--", ":", "-.")

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "toolspec",
    "text.parse_math": False,  # names come from files
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
_FAMILY = re.compile(r"'DejaVu Sans'[^;\"]*")
_COLOUR = re.compile("|".join(map(re.escape, VARIABLES)))
_IDS = re.compile(r'(\bid="|url\(#|xlink:href="#)')
_BEFORE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>')


@dataclass(frozen=True)
class Look:
    """Of one variant in all charts. ``shade``: opacity, less for each further variant of an algorithm."""

    colour: str
    shade: float
    marker: str
    line: str

    @property
    def style(self) -> dict[str, Any]:
        """Of whatever is drawn."""
        return {"color": self.colour, "alpha": self.shade}

    @property
    def lined(self) -> dict[str, Any]:
        """Of a line."""
        return {**self.style, "ls": self.line}


def looks(variants: Sequence[tuple[str, str]]) -> dict[str, Look]:
    """By name, for pairs of name and algorithm in the order of a run."""
    found: dict[str, Look] = {}
    seen: dict[str, int] = {}
    for name, algorithm in variants:
        at = seen[algorithm] = seen.get(algorithm, -1) + 1
        shade, line = _SHADES[min(at, len(_SHADES) - 1)], _LINES[at % len(_LINES)]
        found[name] = Look(_ALGORITHMS[algorithm], shade, _MARKERS[at % len(_MARKERS)], line)
    return found


def canvas(height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of ``height`` inches with axes side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


def bars_canvas(bars: int) -> tuple[Figure, Axes]:
    """For ``bars`` horizontal bars, the first one on top."""
    figure, (axes,) = canvas(0.62 + 0.3 * bars)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_ylim(bars - 0.4, -0.6)
    return figure, axes


def legend_above(axes: Axes, columns: int) -> None:
    """Above the axes, where no line can run through it."""
    axes.legend(loc="lower left", ncols=columns, bbox_to_anchor=(0, 1), borderaxespad=0.2)


def short(name: str) -> str:
    """A name from a file, on one line and not too long."""
    name = " ".join(name.split())
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def drawn(draw: Callable[[], Figure | None], name: str, title: str) -> str | None:
    """What ``draw`` draws with ``canvas``, as an SVG element; ``None`` where it has nothing to draw.

    ``name`` keeps its ids apart from those of others on the page.
    """
    out = StringIO()
    with rc_context(_STYLE):
        if (figure := draw()) is None:
            return None
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = _METADATA.sub("", _BEFORE.sub("", out.getvalue()))
    text = _IDS.sub(rf"\g<1>{name}-", text)
    text = _COLOUR.sub(lambda found: f"var({VARIABLES[found.group()]})", text)
    text = _FAMILY.sub("var(--sans)", text)
    label = escape(title)
    return _SIZE.sub(
        lambda found: f'<svg class="chart" role="img" aria-label="{label}" viewBox="{found.group(1)}">',
        text,
        count=1,
    )
