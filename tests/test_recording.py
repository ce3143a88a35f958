"""The file of recorded requests: any text in it is either read or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime import recording
from sglang_toolspec.runtime.recording import Recorded, read_runs

HEADER = {
    "toolspec_record": 1, "model": "m", "tokenizer": "t", "vocab_size": 100, "stop_ids": [99],
    "parser": None, "width": 32,
}  # fmt: skip
REPLY = {"prompt_ids": [1], "output_ids": [2, 3], "stopped": True}


def write(folder: Path, *lines: Any) -> Path:
    """Objects as JSON, text as it is."""
    file = folder / "r.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts), errors="surrogateescape")
    return file


def test_replies_belong_to_the_header_above(tmp_path: Path) -> None:
    file = write(tmp_path, HEADER, REPLY, "", REPLY, {**HEADER, "width": 8}, {**REPLY, "masked": True})

    first, second = read_runs(file)

    assert (len(first.replies), len(second.replies)) == (2, 1)
    assert (first.header.width, second.header.width) == (32, 8)
    assert second.replies[0].masked


@pytest.mark.parametrize(
    ("first", "last", "numbers"),
    [(0, None, [0, 1, 2, 3]), (1, 3, [1, 2]), (2, None, [2, 3]), (3, 2, []), (9, None, []), (0, 0, [])],
)
def test_rows_are_counted_over_all_runs(
    tmp_path: Path, first: int, last: int | None, numbers: list[int]
) -> None:
    replies = [{**REPLY, "output_ids": [number]} for number in range(4)]
    file = write(tmp_path, HEADER, *replies[:3], HEADER, replies[3])

    runs = read_runs(file, first, last)

    assert [reply.output_ids[0] for run in runs for reply in run.replies] == numbers
    assert all(run.replies for run in runs)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("[]", "should be an object"),
        ('"a"', "should be an object"),
        ("\udc80", "Invalid JSON"),
        ({}, "'/prompt_ids': Field required"),
        ({**REPLY, "output_ids": []}, "'/output_ids'"),
        ({**REPLY, "output_ids": [2, -1]}, "'/output_ids/1'"),
        ({**REPLY, "output_ids": [2, "3"]}, "'/output_ids/1': Input should be a valid integer"),
        ({**REPLY, "output_ids": [2, True]}, "'/output_ids/1'"),
        ({**REPLY, "prompt_ids": ["x"] * 1000}, "'/prompt_ids/0'"),
        ({**REPLY, "prompt_ids": [1 << 70]}, "'/prompt_ids/0'"),
        ({**REPLY, "output_ids": [100]}, "outside the vocabulary"),
        ({**REPLY, "prompt_ids": [100]}, "outside the vocabulary"),
        ({**REPLY, "tools": []}, "'/tools'"),
        ({**REPLY, "odd": 1}, "'/odd'"),
        ({**REPLY, "o" * 5000: 1}, r"'/ooo.*\.\.\.'"),
        ({**REPLY, "\x1b[2J": 1}, r"\\x1b"),
        ({**REPLY, "candidates": [[[1, 0.5]]]}, "'/candidates/0'"),
        ({**REPLY, "candidates": [[[-1, 0.5]] * 8]}, "'/candidates/0/0/0'"),
        ({**REPLY, "vector": "A"}, "'/vector'"),
        ({**REPLY, "vector": "AA=="}, "'/vector'"),
        ({**HEADER, "toolspec_record": 2}, "no header at '/toolspec_record'"),
        ({**HEADER, "vocab_size": 1 << 40}, "no header at '/vocab_size'"),
        ({**HEADER, "width": 0}, "no header at '/width'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, says: str) -> None:
    file = write(tmp_path, HEADER, REPLY, line, REPLY)

    with pytest.raises(UserError, match=f"^line 3 of {file} .*{says}") as raised:
        read_runs(file)

    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


def test_a_reply_needs_a_header(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 1 of .* before any header"):
        read_runs(write(tmp_path, REPLY))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_runs(tmp_path / "none.jsonl")


def test_a_line_without_an_end_is_not_read_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_LINE", 1 << 20)

    with pytest.raises(UserError, match=r"line 2 of .* longer than 1 MiB"):
        read_runs(write(tmp_path, HEADER, "x" * (2 << 20)))


def test_only_the_chosen_rows_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 1 << 20)
    large = {**REPLY, "json_schema": "x" * 600_000}
    file = write(tmp_path, HEADER, large, large, REPLY)

    with pytest.raises(UserError, match="over 1 MiB of replies; choose some with --rows"):
        read_runs(file)
    assert len(read_runs(file, 1)[0].replies) == 2


IDS = st.lists(st.integers(0, 99), min_size=1, max_size=5)


@given(IDS, IDS, st.booleans(), st.text(), st.none() | st.text(alphabet="AB", min_size=4, max_size=4))
def test_what_is_written_is_read(
    prompt: list[int], output: list[int], masked: bool, tools: str, vector: str | None
) -> None:
    likely = [[(token, 0.125)] * 8 for token in output]
    recorded = Recorded(
        prompt_ids=prompt, output_ids=output, stopped=masked, tools=tools, masked=masked,
        candidates=likely, vector=None if vector is None else vector * 2,
    )  # fmt: skip

    assert Recorded.model_validate_json(recorded.model_dump_json(exclude_defaults=True)) == recorded
