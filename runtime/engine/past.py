"""``--toolspec-history``: the history of calls that outlives the server."""

from __future__ import annotations

import logging
from pathlib import Path

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.history.folder import Lock
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.history.manifest import Fingerprint
from sglang_toolspec.runtime.history.opening import open_history
from sglang_toolspec.runtime.tokens import TokenCodec

logger = logging.getLogger(__name__)


def refuse_history(config: Config) -> None:
    """Raise ``UserError`` for a folder that cannot be used, before the model is loaded."""
    if config.history is not None:
        with Lock(config.history):
            pass


def server_history(config: Config, codec: TokenCodec | None, model: str) -> History:
    """In memory, or in the folder that was named.

    A model is known by the last part of its name, so that its folder may be moved.
    """
    if config.history is None or codec is None:
        return History()
    try:
        return open_history(config.history, Fingerprint(model=Path(model).name, tokenizer=codec.fingerprint))
    except UserError as error:  # it could be used when the server was started
        logger.warning("toolspec: the history stays in memory: %s", error)
        return History()
