"""A history's folder: a lock, the manifest, and the log that it names. One process changes it."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.history import manifest as manifests
from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.history.log import MAGIC, Log, checksum
from sglang_toolspec.runtime.history.manifest import Fingerprint, Manifest, Snapshot, read_manifest
from sglang_toolspec.runtime.history.records import Stored, Unusable
from sglang_toolspec.runtime.history.replay import copy_live, replay

LOCK = "lock"
_OURS = re.compile(r"lock|manifest\.json|entries-\d+\.log|.*\.part")


class Lock:
    """This process's hold on a folder, until ``release`` or its end."""

    def __init__(self, folder: Path):
        """Makes the folder where there is none. Raises ``UserError``."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UserError(f"the history folder {folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have set the folder aside, so that another stands in its place.
            held = os.path.samestat(os.fstat(self._descriptor), os.stat(folder / LOCK))
        except OSError:
            held = False
        if not held:
            os.close(self._descriptor)
            raise UserError(
                f"the history folder {folder} is in use by another process; stop it, or use another folder"
            )

    def release(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Folder:
    """The files of a history that this process may change. Mutable, for one thread at a time."""

    def __init__(self, path: Path, manifest: Manifest, log: Log, lock: Lock):
        self.path = path
        self.manifest = manifest
        self._log = log
        self._lock = lock

    @classmethod
    def new(cls, path: Path, fingerprint: Fingerprint, capacity: int, lock: Lock) -> Folder:
        """Start an empty history. Raises ``OSError``."""
        name = "entries-1.log"
        manifests.write_whole(path / name, MAGIC)
        snapshot = Snapshot(bytes=len(MAGIC), entries=0, crc32=crc32(MAGIC))
        manifest = Manifest(fingerprint=fingerprint, capacity=capacity, log=name, snapshot=snapshot)
        manifests.write_manifest(path, manifest)
        return cls(path, manifest, Log(_private(path / name, "r+"), len(MAGIC)), lock)

    @classmethod
    def load(cls, path: Path, fingerprint: Fingerprint | None, lock: Lock) -> tuple[Folder, list[Stored]]:
        """A folder and its entries, which must be for ``fingerprint``, unless that is ``None``.

        Raises ``Unusable`` and ``OSError``. What is written goes over a record that was cut off.
        """
        manifest, stored, end = read_folder(path)
        if fingerprint and (difference := fingerprint.difference(manifest.fingerprint)):
            raise Unusable(f"it is for {difference}")
        for stray in (*path.glob("entries-*.log"), *path.glob("*.part")):
            if stray.name != manifest.log:  # left by a process that was killed while it compacted
                stray.unlink()
        return cls(path, manifest, Log(_private(path / manifest.log, "r+"), end), lock), stored

    @property
    def log_bytes(self) -> int:
        return self._log.end

    def append(self, data: bytes) -> None:
        """Write records, all or none. Raises ``OSError``, and may be called again then."""
        self._log.append(data)

    def sync(self) -> None:
        """Have on disk what was written; raises ``OSError``."""
        self._log.sync()

    def describe(self, fingerprint: Fingerprint, capacity: int) -> None:
        """Change the manifest; raises ``OSError``."""
        changed = self.manifest.model_copy(update={"fingerprint": fingerprint, "capacity": capacity})
        manifests.write_manifest(self.path, changed)
        self.manifest = changed

    def compact(self, keep: Callable[[Entry], bool] = lambda entry: True) -> int:
        """Put a log in the place of this one that has nothing but the entries left, and kept.

        Returns how many there are. Raises ``OSError`` and ``Unusable``; all is as it was then.
        """
        old = self.path / self.manifest.log
        number = int(old.stem.removeprefix("entries-")) + 1
        path = self.path / f"entries-{number}.log"
        file = _private(path, "x+")
        try:
            log = Log(file, 0)
            log.append(MAGIC)
            entries = copy_live(lambda: old.open("rb"), log.append, keep)
            log.sync()
            check = checksum(file, log.end) or 0
            snapshot = Snapshot(bytes=log.end, entries=entries, crc32=check)
            manifest = self.manifest.model_copy(update={"log": path.name, "snapshot": snapshot})
            manifests.write_manifest(self.path, manifest)
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self._log.close()
        self._log, self.manifest = log, manifest
        old.unlink(missing_ok=True)
        return entries

    def close(self) -> None:
        self._log.close()
        self._lock.release()


def read_folder(path: Path) -> tuple[Manifest, list[Stored], int]:
    """What a folder holds, and where the last whole record of its log ends; changes nothing.

    The dimension of its vectors is filled in where the manifest does not know it yet. Raises
    ``Unusable`` and ``OSError``.
    """
    manifest, file = _current(path)
    with file:
        begins = manifest.snapshot
        if checksum(file, begins.bytes) != begins.crc32:
            raise Unusable(f"the first {begins.bytes} bytes of its log are not those that were written")
        file.seek(0)
        stored, end = replay(file, manifest.capacity)
    if not stored:
        return manifest, stored, end
    dim = len(stored[0].row)
    if manifest.fingerprint.dimension not in (None, dim):
        raise Unusable(f"its log holds vectors of {dim} numbers, not {manifest.fingerprint.dimension}")
    fingerprint = manifest.fingerprint.model_copy(update={"dimension": dim})
    return manifest.model_copy(update={"fingerprint": fingerprint}), stored, end


def is_unused(path: Path) -> bool:
    """Whether a history may be started in a folder: it is empty but for what an attempt leaves.

    Raises ``UserError`` where it holds anything else than a history, and ``Unusable`` for one that has
    lost its manifest.
    """
    names = sorted(file.name for file in path.iterdir())
    if manifests.NAME in names:
        return False
    if foreign := [name for name in names if not _OURS.fullmatch(name)]:
        raise UserError(f"{path} is not a history and holds '{foreign[0]}'; give a new or an empty folder")
    if any(file.stat().st_size > len(MAGIC) for file in path.glob("entries-*.log")):
        raise Unusable(f"its {manifests.NAME} is missing")
    return True


def set_aside(path: Path) -> Path:
    """Rename a folder, so that a new one can stand in its place; returns its new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.refused-{stamp}-{number}")
        if not aside.exists():
            path.rename(aside)
            return aside
    raise FileExistsError(f"{path} was set aside too often in one second")


def _current(path: Path) -> tuple[Manifest, BinaryIO]:
    """The manifest and the log it names: a server may be compacting, which changes both."""
    while True:
        manifest = read_manifest(path)
        try:
            return manifest, (path / manifest.log).open("rb")
        except FileNotFoundError as error:
            if read_manifest(path) == manifest:
                raise Unusable(f"its log {manifest.log} is missing") from error


def _private(path: Path, mode: str) -> FileIO:
    """Unbuffered, and readable by its owner only."""
    return FileIO(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
