"""CPU servers, each started at most once per test session and shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_toolspec.model import DEFAULT_MODEL, cached
from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client
from tests.small_model import build_small_model

SMALL_FLAGS = ["--dtype", "float32", "--tool-call-parser", "qwen25", "--max-total-tokens", "8192"]
REAL_FLAGS = ["--dtype", "float32"]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_model(tmp_path_factory.mktemp("small-model"))


def _serve(model: str, flags: list[str], log: Path) -> Iterator[Client]:
    with ServerProcess(model, [*flags, "--log-level", "warning"], log) as server:
        yield Client(server)


@pytest.fixture(scope="session")
def small_plain(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # Under overlap scheduling SGLang itself counts penalties one token late.
    flags = [*SMALL_FLAGS, "--speculative-algorithm", "none", "--disable-overlap-schedule"]
    yield from _serve(str(small_model), flags, tmp_path_factory.mktemp("log") / "small-plain.log")


@pytest.fixture(scope="session")
def small_toolspec(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = [*SMALL_FLAGS, "--max-running-requests", "8"]
    for client in _serve(str(small_model), flags, tmp_path_factory.mktemp("log") / "small-toolspec.log"):
        yield client
        assert client.stats()["faults"] == {}, "drafting failed somewhere in the session"


@pytest.fixture(scope="session")
def real_model() -> str:
    folder = cached()
    if folder is None:
        pytest.skip(f"the model is not fetched; run: sglang-toolspec model fetch {DEFAULT_MODEL}")
    return str(folder)


@pytest.fixture(scope="module")
def real_plain(real_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = [*REAL_FLAGS, "--speculative-algorithm", "none"]
    yield from _serve(real_model, flags, tmp_path_factory.mktemp("log") / "real-plain.log")


@pytest.fixture(scope="module")
def real_toolspec(real_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from _serve(real_model, REAL_FLAGS, tmp_path_factory.mktemp("log") / "real-toolspec.log")
