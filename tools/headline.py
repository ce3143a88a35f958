"""Writes the README's table of measured figures from docs/acceptance.json.

``python tools/headline.py`` after ``make accept``; a test holds the README to what this makes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README, FIGURES = ROOT / "README.md", ROOT / "docs" / "acceptance.json"
BEGIN = "<!-- begin figures: written by tools/headline.py from docs/acceptance.json -->"
END = "<!-- end figures -->"
_NAMES = {"none": "none (plain decoding)", "ngram": "SGLang's NGRAM, {} draft tokens"}


def block(figures: Mapping[str, Any]) -> str:
    """The table, the slowest first, and a line that says what it was measured on."""
    results = sorted(figures["results"], key=lambda result: result["tokens_per_s"])
    interval = " (95 % interval)" if any(result["speedup_ci"] for result in results) else ""
    rows = [
        f"| algorithm | verify steps | accept length | tokens/s | speed-up{interval} |",
        "|---|---:|---:|---:|---:|",
        *map(_row, results),
    ]
    same = min(result["identical_share"] for result in results)
    parted = f"At least {same:.1%} of the replies are the same"
    replies = "All replies have the same token ids" if same == 1 else parted
    versions = ", ".join(f"{package} {version}" for package, version in figures["versions"].items())
    commit = f", commit {figures['commit']}" if "commit" in figures else ""
    measured = (
        f"{figures['rows']} rows, {results[0]['tokens']:,} tokens, {figures['dtype']}. {replies}. "
        f"{figures['model']}; {figures['machine']}; {versions}; {figures['finished'][:10]}{commit}."
    )
    return "\n".join([BEGIN, *rows, "", measured, END])


def _row(result: Mapping[str, Any]) -> str:
    algorithm, _, width = result["variant"].partition("-")
    name = _NAMES.get(algorithm, result["variant"]).format(width)
    interval = result["speedup_ci"] if algorithm != "none" else None
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    figures = (f"{result['steps']:,}", f"{result['accept_length']:.2f}", f"{result['tokens_per_s']:.2f}")
    return "| " + " | ".join([name, *figures, f"{result['speedup']:.2f}x{between}"]) + " |"


def updated(readme: str, figures: Mapping[str, Any]) -> str:
    """The README with the table in it; raises ``ValueError`` where its place is not marked."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md needs the lines '{BEGIN}' and '{END}'")
    return before + block(figures) + after


def main() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["figures"]
    README.write_text(updated(README.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
