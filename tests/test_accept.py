"""What ``make accept`` promises about recorded replies, without a server."""

from __future__ import annotations

import pytest

from sglang_toolspec.runtime.attribution import Attribution
from tests import accept, recorded
from tests.recorded import Reply, SkeletonTotals


def test_recorded_replies_are_as_many_as_were_asked_for() -> None:
    by_choice = sum(auto + required for auto, required in recorded.SOURCES.values())
    assert by_choice + accept.IDENTITY_ROWS >= accept.RECORDED_REPLIES


class Tokenizer:
    eos_token_id = 0

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(("count", "missed", "ok"), [(200, 30, True), (200, 31, False), (199, 0, False)])
def test_too_many_missed_skeleton_tokens_or_too_few_replies_fail(
    monkeypatch: pytest.MonkeyPatch, count: int, missed: int, ok: bool
) -> None:
    totals = SkeletonTotals(calls=count, steps=300, bound=400, skeleton=1000, missed=missed)
    monkeypatch.setattr(accept, "tokenizer", Tokenizer)
    monkeypatch.setattr(accept, "TokenCodec", lambda *_: None)
    monkeypatch.setattr(accept, "replayed", lambda *_, **__: (Attribution(), totals))
    replies = [Reply("kind", [], False, [1, 2])] * count

    found = accept.summarise_recorded(replies)

    assert found["ok"] is ok
    assert found["replies"]["kind"]["replies"] == count
