"""An SGLang server as a child process: start, wait, ask, stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import httpx

from sglang_toolspec.errors import UserError
from sglang_toolspec.lifeline import Lifeline

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """``with ServerProcess(model, flags, log) as server: httpx.post(server.url + …)``.

    Runs ``sglang-toolspec serve``; ``flags`` are SGLang's. Output goes to the file ``log``. The server ends
    with this process, even if that is killed.
    """

    def __init__(self, model: str, flags: Sequence[str], log: Path, env: dict[str, str] | None = None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._command = [sys.executable, "-m", "sglang_toolspec.cli", "serve", model, *flags]
        self._command += ["--port", str(self.port), "--host", "127.0.0.1"]
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None

    def __enter__(self) -> ServerProcess:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, on_wait: Callable[[float], None] = lambda seconds: None) -> None:
        """Start and wait until the server answers; raises ``UserError`` with the log's end if it dies."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._lifeline = Lifeline()
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**self._env, **self._lifeline.env},
                pass_fds=[self._lifeline.server_end],
                start_new_session=True,
            )
        self._lifeline.started()
        began = time.monotonic()
        while not self.healthy():
            waited = time.monotonic() - began
            on_wait(waited)
            if self._process.poll() is not None or waited > START_TIMEOUT_S:
                self.stop()
                tail = self.log.read_text(errors="replace").strip().splitlines()[-5:]
                raise UserError(f"the server did not start (log: {self.log}): " + " / ".join(tail))
            time.sleep(0.5)

    def healthy(self) -> bool:
        """Whether the server answers its health check (which decodes one token)."""
        try:
            return httpx.get(self.url + "/health_generate", timeout=20).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop the server and every process it started."""
        if self._process is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self._process.wait(STOP_TIMEOUT_S if sign is signal.SIGTERM else None)
            except subprocess.TimeoutExpired:
                continue
        self._process = None
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None


@contextmanager
def serving(url: str | None = None, flags: Sequence[str] = ()) -> Iterator[str]:
    """``url`` as it is, or that of a server of the default model that lives as long as the block.

    ``flags`` are SGLang's, for the server that is started.
    """
    if url is not None:
        yield url
        return
    from sglang_toolspec.model import fetch

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with ServerProcess(str(fetch()), [*flags, "--log-level", "warning"], log) as server:
            yield server.url
