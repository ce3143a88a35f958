"""A stop string ends a reply whatever tokens spell it, and however many of them a step brings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_toolspec.runtime.engine.stops import LONGEST, widen_window

STOP = "</call>"


class Letters:
    """One token a letter, but the stop string is one token where it is encoded."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [0] if text == STOP else list(map(ord, text))

    def decode(self, ids: Any) -> str:
        return "".join(map(chr, ids))


def params(*stops: str) -> SamplingParams:
    made = SamplingParams(stop=list(stops))
    made.normalize(Letters())
    widen_window(None, made, Letters())
    return made


def finished_at(text: str, step: int) -> int | None:
    """Length of the reply at which SGLang ends it, when ``step`` letters come at a time."""
    req: Any = Req.__new__(Req)
    req.__dict__ |= {
        "sampling_params": params(STOP), "tokenizer": Letters(), "output_ids": [], "decoded_text": "",
        "finished_reason": None, "finished_len": None,
    }  # fmt: skip
    for at in range(0, len(text), step):
        new = list(map(ord, text[at : at + step]))
        req.output_ids = [*req.output_ids, *new]
        if req._check_str_based_finish(len(new)):
            return req.finished_len
    return None


@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_a_spelled_out_stop_string_ends_the_reply_where_it_first_stands(step: int) -> None:
    text = f"one{STOP}two{STOP}three"

    assert finished_at(text, step) == len(f"one{STOP}")


def test_the_window_has_room_for_bytes_and_is_bounded() -> None:
    assert params("né").stop_str_max_len == 3
    assert params(STOP, "a" * LONGEST).stop_str_max_len == LONGEST
    assert params().stop_str_max_len == 0
    huge = SimpleNamespace(stop_strs=["a" * 10_000], stop_str_max_len=7)
    widen_window(None, huge)
    assert huge.stop_str_max_len == 7


def test_a_lone_surrogate_in_a_stop_string_is_no_fault() -> None:
    odd = SimpleNamespace(stop_strs=["\ud800"], stop_str_max_len=1)
    widen_window(None, odd)
    assert odd.stop_str_max_len == 1
