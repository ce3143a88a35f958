"""Entry point in the group ``sglang.srt.plugins``: SGLang calls ``register`` in every process."""

from __future__ import annotations

import logging
from importlib.metadata import version

from sglang_toolspec import SGLANG_VERSION
from sglang_toolspec.errors import UserError

logger = logging.getLogger(__name__)


def register() -> None:
    """Register the algorithm and the hooks. Cheap and idempotent.

    SGLang logs an exception of a plugin and goes on, so ``UserError`` is logged here in
    one line; the algorithm then stays unknown and the server refuses to start with it.
    """
    try:
        check_sglang_version()
    except UserError as error:
        logger.error("toolspec: %s", error)
        return
    from sglang_toolspec.runtime.engine.hooks import install_hooks

    install_hooks()


def check_sglang_version(installed: str | None = None) -> None:
    """Raise ``UserError`` unless SGLang is the release this version is written for."""
    installed = installed or version("sglang")
    if installed.split("+")[0] != SGLANG_VERSION:
        raise UserError(
            f"sglang-toolspec needs SGLang {SGLANG_VERSION} and found {installed}; "
            f"run: pip install sglang=={SGLANG_VERSION}"
        )
