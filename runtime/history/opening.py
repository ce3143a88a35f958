"""Histories that outlive the process: loaded from a folder, and written to it as they change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.history import manifest as manifests
from sglang_toolspec.runtime.history.folder import Folder, Lock, is_unused, read_folder, set_aside
from sglang_toolspec.runtime.history.history import CAPACITY, MAX_TENANTS, History
from sglang_toolspec.runtime.history.manifest import Fingerprint, Manifest
from sglang_toolspec.runtime.history.records import Stored, Unusable
from sglang_toolspec.runtime.history.writer import Writer

logger = logging.getLogger(__name__)


def open_history(
    folder: str | Path,
    fingerprint: Fingerprint,
    capacity: int = CAPACITY,
    max_tenants: int = MAX_TENANTS,
    now: Callable[[], float] = time.time,
) -> History:
    """The history in ``folder``, empty where there was none; it is this process's until ``close``.

    One that is damaged, or that is for another model, tokenizer or dimension, is renamed
    ``<folder>.refused-…`` with a warning, and an empty one takes its place. Raises ``UserError`` where
    the folder is in use, cannot be used, or holds something else.
    """
    path = Path(folder).resolve()
    while True:
        with ExitStack() as undo:
            lock = undo.enter_context(Lock(path))
            try:
                files, stored = _load(path, fingerprint, capacity, lock)
            except Unusable as reason:
                aside = _set_aside(path)
                logger.warning("toolspec: the history in %s is set aside: %s; see %s", path, reason, aside)
                continue
            undo.pop_all()
            return _history(files, stored, capacity, max_tenants, now)


def open_existing(folder: str | Path) -> History:
    """A history as it was made, to change it by hand; raises ``UserError`` where there is none."""
    files, stored = open_files(Path(folder))
    capacity = files.manifest.capacity
    return _history(files, stored, capacity, max_tenants=capacity, now=time.time)


def open_files(path: Path) -> tuple[Folder, list[Stored]]:
    """An existing folder, for changing, until ``close``. Raises ``UserError``."""
    _require(path)
    with ExitStack() as undo:
        lock = undo.enter_context(Lock(path))
        try:
            found = Folder.load(path, None, lock)
        except (Unusable, OSError) as reason:
            raise UserError(f"the history in {path} cannot be used: {reason}") from reason
        undo.pop_all()
    return found


def read_entries(folder: str | Path) -> tuple[Manifest, list[Stored]]:
    """What a folder holds, also while a server writes it; raises ``UserError``."""
    path = Path(folder)
    _require(path)
    try:
        manifest, stored, _ = read_folder(path)
    except (Unusable, OSError) as reason:
        raise UserError(f"the history in {path} cannot be read: {reason}") from reason
    return manifest, stored


def _require(path: Path) -> None:
    if not (path / manifests.NAME).is_file():
        raise UserError(f"there is no history in {path}: it has no {manifests.NAME}")


def _load(path: Path, fingerprint: Fingerprint, capacity: int, lock: Lock) -> tuple[Folder, list[Stored]]:
    try:
        if is_unused(path):
            return Folder.new(path, fingerprint, capacity, lock), []
        files, stored = Folder.load(path, fingerprint, lock)
        known = files.manifest.fingerprint
        dimension = known.dimension or fingerprint.dimension
        files.describe(known.model_copy(update={"dimension": dimension}), capacity)
        return files, stored
    except OSError as error:
        raise UserError(f"the history folder {path} cannot be used: {error.strerror or error}") from error


def _set_aside(path: Path) -> Path:
    try:
        return set_aside(path)
    except OSError as error:
        raise UserError(f"{path} holds no history of this server and cannot be renamed: {error}") from error


def _history(
    files: Folder, stored: Sequence[Stored], capacity: int, max_tenants: int, now: Callable[[], float]
) -> History:
    writer = Writer(files, stored, lambda what: logger.warning("toolspec: %s", what))
    history = History(capacity, max_tenants, files.manifest.fingerprint.dimension, writer, now)
    history.restore(stored)
    return history
