"""``manifest.json``: whose history a folder holds, and which file is its log."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sglang_toolspec.runtime.history.records import Unusable
from sglang_toolspec.runtime.history.vectors import MAX_DIM

NAME = "manifest.json"
_MAX_BYTES = 1 << 20

_Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Fingerprint(_Strict):
    """What vectors and tokens mean. Histories are only mixed where it is the same.

    ``tokenizer`` is a hash of it. ``dimension`` is ``None`` as long as no vector was seen.
    """

    model: str
    tokenizer: str
    dimension: Annotated[int, Field(ge=1, le=MAX_DIM)] | None = None
    space: Literal["cosine"] = "cosine"

    def difference(self, other: Fingerprint) -> str | None:
        """How ``other`` differs from this one, in words that follow "it is for"; ``None`` if not at all."""
        if other.model != self.model:
            return f"the model {other.model!r}, not {self.model!r}"
        if other.tokenizer != self.tokenizer:
            return "another tokenizer"
        if None not in (self.dimension, other.dimension) and self.dimension != other.dimension:
            return f"vectors of {other.dimension} numbers, not {self.dimension}"
        return None


class Snapshot(_Strict):
    """What the log began as: its first ``bytes``, with as many ``entries``."""

    bytes: _Count
    entries: _Count
    crc32: _Count


class Manifest(_Strict):
    format: Literal[1] = 1
    fingerprint: Fingerprint
    capacity: Annotated[int, Field(ge=1)]
    log: Annotated[str, Field(pattern=r"^entries-[0-9]{1,18}\.log$")]
    snapshot: Snapshot


def read_manifest(folder: Path) -> Manifest:
    """Raises ``Unusable``, ``FileNotFoundError`` and other ``OSError``."""
    with (folder / NAME).open("rb") as file:
        text = file.read(_MAX_BYTES + 1)
    try:
        if len(text) > _MAX_BYTES:
            raise ValueError
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"]))
        raise Unusable(f"{NAME} is wrong at '/{where}': {first['msg']}") from error
    except ValueError as error:
        raise Unusable(f"{NAME} is too large") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_whole(folder / NAME, (manifest.model_dump_json(indent=1) + "\n").encode())


def write_whole(path: Path, data: bytes) -> None:
    """The file has all of ``data`` afterwards, or is as it was; raises ``OSError``."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
    _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    """Make the names that were given in ``folder`` last, where its file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
