"""A server ends with the process that started it, however that one ends.

The starter holds the only writing end of a pipe, and the server waits at the other: a starter that is
killed, even with SIGKILL, leaves no server behind that keeps its memory and its port.
"""

from __future__ import annotations

import os
import signal
import threading
import time

VARIABLE = "TOOLSPEC_LIFELINE"
"""Number of the file descriptor at which the server waits."""
GRACE_S = 30.0


class Lifeline:
    """The starter's end. ``close`` when the server has stopped."""

    def __init__(self) -> None:
        self.server_end, self._held = os.pipe()
        self.env = {VARIABLE: str(self.server_end)}

    def started(self) -> None:
        """The server has its end now."""
        os.close(self.server_end)

    def close(self) -> None:
        os.close(self._held)


def follow() -> None:
    """In the server: end this process group with its starter, where it has one."""
    number = os.environ.pop(VARIABLE, "")
    if number:
        threading.Thread(target=_end_with, args=[int(number)], name="toolspec-lifeline", daemon=True).start()


def _end_with(server_end: int) -> None:
    os.read(server_end, 1)  # nothing is ever written: it returns when the starter is gone
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)
