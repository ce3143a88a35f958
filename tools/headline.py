"""Writes the README's table of measured figures from a summary of ``sglang-toolspec bench run``.

``python tools/headline.py out/summary.json`` keeps what the table says of that summary in
``docs/headline.json`` and writes the table; a test holds the README to what this makes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README, FIGURES = ROOT / "README.md", ROOT / "docs" / "headline.json"
BEGIN = "<!-- begin figures: written by tools/headline.py from docs/headline.json -->"
END = "<!-- end figures -->"
_NAMES = {"none": "none (plain decoding)", "ngram": "SGLang's NGRAM, {} draft tokens"}
_KEPT = ("results", "complete", "measured", "settings", "versions", "machine", "code", "commands")


def block(figures: Mapping[str, Any]) -> str:
    """The table, the slowest first, and a line that says what it was measured on."""
    results = sorted(figures["results"], key=lambda result: result["tokens_per_s"])
    rows = [
        "| algorithm | verify steps | accept length | tokens/s | speed-up (95 % interval) |",
        "|---|---:|---:|---:|---:|",
        *map(_row, results),
    ]
    same = min(result["identical_share"] for result in results)
    parted = f"At least {same:.1%} of the replies are the same"
    replies = "All replies have the same token ids" if same == 1 else parted
    settings = figures["settings"]
    flags = settings["server_flags"]
    versions = ", ".join(f"{package} {version}" for package, version in figures["versions"].items())
    measured = (
        f"{results[0]['n']} rows, {results[0]['tokens']:,} tokens, {flags[flags.index('--dtype') + 1]}, "
        f"greedy. {replies}. {settings['model']}; {figures['machine']}; {versions}; "
        f"{figures['measured'][0][:10]}."
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
    summary = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not summary["complete"]:
        sys.exit(f"{sys.argv[1]} is of an unfinished run; the same command goes on")
    figures = {key: summary[key] for key in _KEPT}
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    README.write_text(updated(README.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
