"""No server outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTER = """
import signal, sys, time
from pathlib import Path
from sglang_toolspec.server_process import ServerProcess

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
server = ServerProcess("m", [], Path(sys.argv[1]))
server._command = [sys.executable, "-c", sys.argv[2]]
server.healthy = lambda: "started" in server.log.read_text()
with server:
    print(server._process.pid, flush=True)
    time.sleep(60)
"""
SERVER = """
import time
from sglang_toolspec import lifeline

lifeline.follow()
print("started", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_server_ends_when_its_starter_is_killed(tmp_path: Path, sign: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "log"), SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        server = int(starter.stdout.readline())
        starter.send_signal(sign)
        starter.wait(10)
    deadline = time.monotonic() + 10
    while runs(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(server)


def runs(pid: int) -> bool:
    """Orphans that have ended may stay as zombies where nobody reaps them."""
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_server_of_a_terminal_follows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_toolspec import lifeline

    monkeypatch.delenv(lifeline.VARIABLE, raising=False)
    monkeypatch.setattr(lifeline.threading, "Thread", lambda **_: pytest.fail("a thread was started"))
    lifeline.follow()
