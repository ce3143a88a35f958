"""CPU servers, each started at most once per test session and shared."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sglang_toolspec.model import DEFAULT_MODEL, cached
from sglang_toolspec.server_process import ServerProcess
from tests.engine.client import Client
from tests.small_model import build_small_model

SMALL_FLAGS = ["--dtype", "float32", "--tool-call-parser", "qwen25", "--enable-return-hidden-states"]
ROOMY = ["--max-total-tokens", "8192"]
# Little memory, and requests are let in as if replies were short: long ones push each other out.
TIGHT = ["--max-total-tokens", "2560", "--chunked-prefill-size", "128", "--schedule-conservativeness", "0.1"]
REAL_FLAGS = ["--dtype", "float32", "--max-total-tokens", "16384"]  # beside other servers


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_model(tmp_path_factory.mktemp("small-model"))


def _serve(model: str, flags: dict[str, list[str]], logs: Path) -> Iterator[dict[str, Client]]:
    """Servers by name, started together: most of a start is importing, on one core."""
    quiet = ["--log-level", "warning"]
    servers = {name: ServerProcess(model, [*f, *quiet], logs / f"{name}.log") for name, f in flags.items()}
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), servers.values()))
        yield {name: Client(server) for name, server in servers.items()}
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.stop(), servers.values()))


@pytest.fixture(scope="session")
def small_servers(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    flags = {
        # Under overlap scheduling SGLang itself counts penalties one token late.
        "plain": [*SMALL_FLAGS, *ROOMY, "--speculative-algorithm", "none", "--disable-overlap-schedule"],
        "toolspec": [*SMALL_FLAGS, *TIGHT, "--max-running-requests", "8", "--enable-metrics"],
    }
    for clients in _serve(str(small_model), flags, tmp_path_factory.mktemp("log-small")):
        yield clients
        assert clients["toolspec"].stats()["faults"] == {}, "drafting failed somewhere in the session"


@pytest.fixture(scope="session")
def small_plain(small_servers: dict[str, Client]) -> Client:
    return small_servers["plain"]


@pytest.fixture(scope="session")
def small_toolspec(small_servers: dict[str, Client]) -> Client:
    return small_servers["toolspec"]


@pytest.fixture(scope="module")
def recording(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """A server that verifies full trees and records, four requests at once, and its file.

    One for each module: requests that ran together replay one after another, so later steps may differ.
    """
    folder = tmp_path_factory.mktemp("recording")
    flags = ["--toolspec-fixed-width", "--toolspec-record", str(folder / "recorded.jsonl")]
    flags += ["--max-running-requests", "4"]
    for clients in _serve(str(small_model), {"recording": [*SMALL_FLAGS, *ROOMY, *flags]}, folder):
        yield clients["recording"], folder / "recorded.jsonl"


@pytest.fixture(scope="session")
def real_model() -> str:
    folder = cached()
    if folder is None:
        pytest.skip(f"the model is not fetched; run: sglang-toolspec model fetch {DEFAULT_MODEL}")
    return str(folder)


@pytest.fixture(scope="session")
def real_toolspec(real_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    for clients in _serve(real_model, {"toolspec": REAL_FLAGS}, tmp_path_factory.mktemp("log-real")):
        yield clients["toolspec"]


@pytest.fixture(scope="session")
def real_plain(real_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = {"plain": [*REAL_FLAGS, "--speculative-algorithm", "none"]}
    for clients in _serve(real_model, flags, tmp_path_factory.mktemp("log-real-plain")):
        yield clients["plain"]
