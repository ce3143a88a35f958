"""Sources that fail in every way: replies stay right, the failures are counted, the sources rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client, at_once
from tests.engine.conftest import ROOMY, SMALL_FLAGS
from tests.engine.prompts import PROMPTS, TOOLS

pytestmark = [pytest.mark.engine, pytest.mark.long]

# Python runs a module of this name when it starts, so in every process of the server.
SITECUSTOMIZE = """
import itertools, time
from sglang_toolspec.runtime import rests
from sglang_toolspec.runtime.drafters import history, recycling, schema, suffix
from sglang_toolspec.runtime.tree import DraftPath

rests.REST = 10  # so that all comes round in a short test

def path(*tokens):
    return DraftPath(tokens, (0.9,) * len(tokens), ("garbage",) * len(tokens))

def raising(real):
    raise RuntimeError("planted")

def garbage(real):
    return [path(-1), path(10**12, 3), path(3, 10**12), path(), *real()]

def endless(real):
    return itertools.chain(real(), itertools.repeat(path(*range(300))))

def stalling(real):
    time.sleep(0.3)
    return real()

FAULTS = (raising, garbage, endless, stalling)

def plant(cls, first):
    real, calls = cls.propose, itertools.count()
    def propose(self):
        fault = FAULTS[(first + next(calls) // 8) % len(FAULTS)]
        return fault(lambda: real(self))
    cls.propose = propose

classes = (schema.SchemaDrafter, suffix.SuffixDrafter, history.HistoryDrafter, recycling.RecyclingDrafter)
for first, cls in enumerate(classes):
    plant(cls, first)
"""


@pytest.fixture(scope="module")
def faulty(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    flags = [*SMALL_FLAGS, *ROOMY, "--log-level", "warning"]
    with ServerProcess(str(small_model), flags, folder / "log", {"PYTHONPATH": paths}) as server:
        yield Client(server)


def test_faults_of_sources_cost_drafts_only(faulty: Client, small_plain: Client) -> None:
    prompts = PROMPTS * 3
    expected = at_once(lambda p: small_plain.generate(p, max_new_tokens=60)["output_ids"], prompts, 8)
    got = at_once(lambda p: faulty.generate(p, TOOLS, max_new_tokens=60)["output_ids"], prompts, 4)
    assert got == expected
    stats = faulty.stats()
    failed = {reason.split(":")[0] for reason in stats["faults"]}
    assert failed == {"schema", "suffix", "history", "recycling"}
    assert set(stats["rests"]) == failed
    assert stats["replies"]["tokens"] >= sum(map(len, got))
