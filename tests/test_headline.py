"""The README's figures are those of the committed measurements."""

from __future__ import annotations

import json

import pytest

from tools.headline import FIGURES, README, block, updated


def figures(**changes):
    result = {"variant": "none", "steps": 3000, "tokens": 3000, "accept_length": 1.0, "tokens_per_s": 3.0,
              "speedup": 1.0, "speedup_ci": [1.0, 1.0], "identical_share": 1.0, "n": 40}  # fmt: skip
    ours = {**result, "variant": "toolspec", "steps": 500, "accept_length": 6.0, "tokens_per_s": 12.0,
            "speedup": 4.0, "speedup_ci": [3.5, 4.5], **changes}  # fmt: skip
    return {"results": [ours, result], "settings": {"model": "M", "server_flags": ["--dtype", "float32"]},
            "machine": "a machine", "versions": {"sglang": "1"},
            "measured": ["2026-11-30T12:00:00+00:00", "2026-11-30T12:30:00+00:00"]}  # fmt: skip


def test_the_readme_has_the_table_that_the_script_makes():
    """Run ``python tools/headline.py SUMMARY`` where this fails."""
    committed = json.loads(FIGURES.read_text(encoding="utf-8"))
    readme = README.read_text(encoding="utf-8")
    assert updated(readme, committed) == readme


def test_the_table_has_every_result_the_slowest_first():
    lines = block(figures()).splitlines()
    assert lines[3] == "| none (plain decoding) | 3,000 | 1.00 | 3.00 | 1.00x |"
    assert lines[4] == "| toolspec | 500 | 6.00 | 12.00 | 4.00x (3.50 to 4.50) |"
    assert lines[6] == ("40 rows, 3,000 tokens, float32, greedy. All replies have the same token ids. "
                        "M; a machine; sglang 1; 2026-11-30.")  # fmt: skip


def test_other_replies_are_not_called_the_same():
    assert "At least 95.0% of the replies are the same" in block(figures(identical_share=0.95))


def test_text_around_the_table_stays_and_a_readme_without_its_place_is_refused():
    begin, *_, end = block(figures()).splitlines()
    assert updated(f"a\n{begin}\nold\n{end}\nb", figures()) == f"a\n{block(figures())}\nb"
    with pytest.raises(ValueError, match=r"README\.md needs the lines"):
        updated(f"a\n{begin}\nb", figures())
