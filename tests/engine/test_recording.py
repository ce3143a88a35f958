"""A server that records: its lines replay to the steps that it took."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from sglang_toolspec.runtime.assembly import Assembler
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.recording import Run, read_runs
from sglang_toolspec.runtime.replay import Simulation
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tokens import TokenCodec
from tests.engine.client import Client
from tests.engine.prompts import PROMPTS, TOOLS
from tests.fakes import no_fault

pytestmark = [pytest.mark.engine, pytest.mark.long]


def _recorded(client: Client, file: Path, count: int) -> Run:
    """The run of a server that has answered ``count`` requests; a later one makes it close the last."""
    for _ in range(50):
        client.generate("Hi", max_new_tokens=8)
        (run,) = read_runs(file) or [None]
        if run is not None and len(run.replies) >= count:
            return run
        time.sleep(0.2)
    raise AssertionError(f"{file} has too few lines: {run}")


def _steps_of_replay(run: Run, model: Path) -> list[int]:
    header = run.header
    codec = TokenCodec(AutoTokenizer.from_pretrained(model), header.vocab_size, header.stop_ids)
    assert codec.fingerprint == header.tokenizer
    assemble = Assembler(codec, header.parser, Faults(no_fault), Config())
    simulation, steps = Simulation(header.width), []
    for reply in run.replies:
        before = simulation.sums.steps
        simulation.add(assemble, reply)
        steps.append(simulation.sums.steps - before)
    return steps


def test_what_a_server_records_replays_to_the_steps_it_took(
    recording: tuple[Client, Path], small_model: Path
) -> None:
    client, file = recording
    prompts = [*PROMPTS, *PROMPTS]
    lengths = [40 + 3 * i for i in range(len(prompts))]  # the last step may go beyond
    replies = [
        client.generate(prompt, TOOLS, max_new_tokens=length)
        for prompt, length in zip(prompts, lengths, strict=True)
    ]

    run = _recorded(client, file, len(replies) + 1)

    ids = [reply.output_ids for reply in run.replies]
    start = ids.index(replies[0]["output_ids"])  # behind the server's own warm-up
    served = slice(start, start + len(replies))
    assert ids[served] == [reply["output_ids"] for reply in replies]
    ended = [reply["meta_info"]["finish_reason"]["type"] == "stop" for reply in replies]
    assert [reply.stopped for reply in run.replies[served]] == ended
    steps = [reply["meta_info"]["spec_verify_ct"] for reply in replies]
    assert _steps_of_replay(run, small_model)[served] == steps
    assert sum(steps) < sum(len(reply["output_ids"]) for reply in replies) - len(replies)
    assert client.stats()["faults"] == {}
