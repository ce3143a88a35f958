"""What one tenant said never comes back to another, whatever happened in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sglang_toolspec.cli import app
from sglang_toolspec.runtime.history.history import History
from tests.histories import A, B, direction, found_tokens, opened, tokens_of

SECRET = 424242
CAPACITY = 40


def filled(folder: Path) -> History:
    """A's secret replies at the very prompts at which B is going to ask."""
    history = opened(folder, capacity=CAPACITY)
    for number in range(CAPACITY // 2):
        history.add(A, direction(number), [SECRET, number], ["secret"])
        history.add(B, direction(number), [number], [])
    return history


def restarted(history: History, folder: Path) -> History:
    history.close()
    return opened(folder, capacity=CAPACITY)


def evicted(history: History, folder: Path) -> History:
    for number in range(CAPACITY, 3 * CAPACITY):
        history.add(B, direction(number), [number], [])
    return history


def rebuilt(history: History, folder: Path) -> History:
    """Tables grow, shrink, and give their slots to other entries."""
    for start in range(100, 400, 50):
        for number in range(start, start + 50):
            tenant, tokens = (B, [number]) if number % 3 else (A, [SECRET, number])
            history.add(tenant, direction(number), tokens, [])
        history.forget(B if start % 100 else A)
    return history


def purged(history: History, folder: Path) -> History:
    history.close()
    assert CliRunner().invoke(app, ["history", "purge", str(folder), "--tenant", A]).exit_code == 0
    return opened(folder, capacity=CAPACITY)


def carried(history: History, folder: Path) -> History:
    history.close()
    file, other = folder.with_suffix(".jsonl"), folder.with_name("other")
    for command in (["export", folder, file], ["import", other, file]):
        assert CliRunner().invoke(app, ["history", *map(str, command)]).exit_code == 0
    return opened(other, capacity=CAPACITY)


Event = Callable[[History, Path], History]
EVENTS: list[Event] = [restarted, evicted, rebuilt, purged, carried]


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_no_tokens_of_one_tenant_for_another(event: Event, tmp_path: Path) -> None:
    history = event(filled(tmp_path / "history"), tmp_path / "history")

    for number in range(CAPACITY * 3):
        shown = found_tokens(history, B, direction(number), 100)
        assert all(tokens[0] != SECRET for tokens in shown)
    assert all(tokens[0] != SECRET for tokens in tokens_of(history.entries(B)))
    assert all(entry.tenant == A for entry, _ in history.similar(A, direction(0), 100))
    assert history.similar("C", direction(0)) == []
    history.close()


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("event", [restarted, carried], ids=lambda event: event.__name__)
def test_each_tenant_still_finds_its_own(event: Event, tmp_path: Path) -> None:
    history = event(filled(tmp_path / "history"), tmp_path / "history")

    assert found_tokens(history, A, direction(3), 1) == [[SECRET, 3]]
    assert found_tokens(history, B, direction(3), 1) == [[3]]
    history.close()


def test_purging_leaves_no_bytes_of_the_tenant_on_disk(tmp_path: Path) -> None:
    history = filled(tmp_path / "history")
    history.close()
    assert any(b"secret" in file.read_bytes() for file in (tmp_path / "history").iterdir())

    CliRunner().invoke(app, ["history", "purge", str(tmp_path / "history"), "--tenant", A])

    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "history").iterdir())


def test_forgetting_in_a_server_leaves_no_bytes_of_the_tenant_on_disk(tmp_path: Path) -> None:
    history = filled(tmp_path / "history")
    assert history.flush()

    history.forget(A)

    assert history.flush()
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "history").iterdir())
    history.close()
