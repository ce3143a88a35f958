"""Greedy float32: EAGLE, EAGLE3 and STANDALONE on the CPU engine decode as plain decoding does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from sglang_toolspec.bench.draft_models import draft_flags
from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client, at_once
from tests.engine.prompts import PROMPTS
from tests.engine.reference import Reference
from tests.small_eagle import build_small_head
from tests.small_model import build_small_model

pytestmark = pytest.mark.engine

FLAGS = ["--dtype", "float32", "--max-total-tokens", "8192", "--max-running-requests", "8"]
# algorithm, branches, drafts in a row, nodes; each is a server of its own, so some are long
SHAPES = [
    pytest.param(("eagle", 1, 2, 3), id="eagle chain"),
    pytest.param(("eagle", 4, 3, 12), id="eagle tree", marks=pytest.mark.long),
    pytest.param(("eagle", 1, 3, 4), id="eagle long chain", marks=pytest.mark.long),
    pytest.param(("eagle", 4, 2, 8), id="eagle flat tree", marks=pytest.mark.long),
    pytest.param(("eagle3", 4, 3, 10), id="eagle3 tree"),
    pytest.param(("standalone", 1, 3, 4), id="standalone chain"),
    pytest.param(("standalone", 2, 3, 6), id="standalone tree", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=SHAPES)
def drafting(
    request: pytest.FixtureRequest, small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    algorithm, topk, steps, nodes = request.param
    folder = tmp_path_factory.mktemp(algorithm)
    if algorithm == "standalone":
        draft = build_small_model(folder / "draft", noise=0.02)
    else:
        draft = build_small_head(folder / "draft", small_model, algorithm)
    shape = {"eagle-topk": topk, "num-steps": steps, "num-draft-tokens": nodes}
    flags = [f"--speculative-{name}={value}" for name, value in shape.items()]
    model = draft_flags(algorithm, str(draft))
    all_flags = [*FLAGS, *model, *flags, "--log-level", "warning"]
    with ServerProcess(str(small_model), all_flags, folder / "server.log") as server:
        yield Client(server)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_replies_are_greedy(small_model: Path, drafting: Client, concurrency: int) -> None:
    """By ``transformers``, so that these tests need no other server and run beside those that do."""
    tokenizer, reference = AutoTokenizer.from_pretrained(small_model), Reference(str(small_model))
    prompts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    replies = at_once(drafting.generate, prompts, concurrency)

    for prompt, reply in zip(prompts, replies, strict=True):
        assert len(reply["output_ids"]) == 48 or reply["meta_info"]["finish_reason"]["type"] == "stop"
        reference.assert_greedy(prompt, reply["output_ids"])
    steps = sum(reply["meta_info"]["spec_verify_ct"] for reply in replies)
    assert steps < sum(reply["meta_info"]["completion_tokens"] for reply in replies), "no draft was accepted"


@pytest.mark.long
@pytest.mark.parametrize("concurrency", [1, 8])
def test_replies_are_those_of_plain_decoding(small_plain: Client, drafting: Client, concurrency: int) -> None:
    expected = at_once(small_plain.generate, PROMPTS, concurrency)
    got = at_once(drafting.generate, PROMPTS, concurrency)
    assert [reply["output_ids"] for reply in got] == [reply["output_ids"] for reply in expected]


@pytest.mark.long
def test_penalties_are_those_of_plain_decoding(small_plain: Client, drafting: Client) -> None:
    settings = {"frequency_penalty": 0.7, "repetition_penalty": 1.2, "min_new_tokens": 30}
    for prompt in PROMPTS[:3]:
        expected = small_plain.generate(prompt, **settings)["output_ids"]
        assert drafting.generate(prompt, **settings)["output_ids"] == expected
