"""SGLang's CPU engine for every test: the switches must be set before SGLang is imported."""

import gc
import os
from typing import Any

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import settings

import sglang_toolspec  # noqa: F401 - makes ``import sgl_kernel`` find the stand-in
from sglang_toolspec.runtime.session import Faults

settings.register_profile("toolspec", deadline=None)
settings.load_profile("toolspec")


@pytest.fixture
def reports() -> list[str]:
    """What ``faults`` has reported."""
    return []


@pytest.fixture
def faults(reports: list[str]) -> Faults:
    return Faults(lambda reason, error: reports.append(reason))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the many objects that importing SGLang leaves."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``pytest -n``: engine tests to one worker, so that they share their servers.

    Those of draft models start their own, beside.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            shared = file.startswith("tests/engine/") and not file.endswith("test_eagle.py")
            return "engine" if shared else file

    return Scheduler(config, log)


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a history that become graphs, grow and shrink with a handful of entries."""
    from sglang_toolspec.runtime.history import shelf, table

    monkeypatch.setattr(table, "FLAT_SLOTS", 8)
    monkeypatch.setattr(shelf, "FLAT_SLOTS", 8)
    monkeypatch.setattr(shelf, "FIRST_SLOTS", 4)
