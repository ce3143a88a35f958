"""The output folder: what was measured, line by line, and what all of it has in common.

``manifest.json``, ``raw/VARIANT.jsonl`` (one measurement a line, appended as soon as it is there),
``failures.jsonl``, ``servers.jsonl``, ``logs/`` and ``summary.json``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from sglang_toolspec.bench.draft_models import about
from sglang_toolspec.bench.plan import Key
from sglang_toolspec.bench.request import Asking
from sglang_toolspec.bench.variants import Variant, fingerprint
from sglang_toolspec.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
PACKAGES = ("sglang-toolspec", "sglang", "torch", "xgrammar")

Record = dict[str, Any]
"""One measurement: the fields of its ``Key`` and of its ``Measurement``, and what the runner adds."""


@dataclass(frozen=True)
class Settings:
    """What all measurements in a folder share. ``environment``: the server's ``TOOLSPEC_…`` variables."""

    model: str
    model_digest: str
    asking: Asking
    history: str
    server_flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Output:
    """Use it as a context: one run at a time writes into a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock: TextIO | None = None
        self._records: dict[str, dict[Key, Record]] = {}

    def __enter__(self) -> Output:
        try:
            (self.folder / "raw").mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another run writes into {self.folder}; wait for it or give another") from error
        except OSError as error:
            raise UserError(f"--output {self.folder} cannot be written: {error.strerror}") from error
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def claim(
        self, settings: Settings, variants: Sequence[Variant], machine: str, command: str, redo: bool = False
    ) -> dict[str, Any]:
        """Make or check the manifest, and return it.

        Raises ``UserError`` where the folder holds measurements under other settings, versions or code.
        ``redo``: those of variants whose code has changed are set aside instead, and measured again.
        """
        common = _plain({"settings": asdict(settings), "versions": versions(), "machine": machine})
        manifest = self.manifest() or {"format": FORMAT, **common, "code": {}, "commands": []}
        for name, now in _leaves(common):
            if (before := dict(_leaves(manifest)).get(name)) != now:
                raise UserError(
                    f"{self.folder} holds measurements with {name} = {before!r}, and this run has {now!r}; "
                    "give another --output"
                )
        for variant in variants:
            code = fingerprint(variant)
            known = manifest["code"].setdefault(variant.name, code)
            if known != code:
                self._set_aside(variant.name, known, redo)
                manifest["code"][variant.name] = code
        told = {variant.name: about(variant.draft_model) for variant in variants if variant.draft_model}
        manifest["draft_models"] = {**manifest.get("draft_models", {}), **told}
        manifest["commands"] = [*dict.fromkeys([*manifest["commands"], command])]
        self._write(MANIFEST, manifest)
        return manifest

    def manifest(self) -> dict[str, Any] | None:
        path = self.folder / MANIFEST
        if not path.exists():
            return None
        try:
            manifest = json.loads(path.read_text())
            if manifest["format"] == FORMAT:
                return dict(manifest)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path} is damaged ({error!r}); give another --output") from error
        raise UserError(f"{path} is of another format than this version writes; give another --output")

    def records(self, variant: str) -> dict[Key, Record]:
        """Of what is measured so far, in the order of measuring."""
        if variant not in self._records:
            found = read_records(self._raw(variant))
            self._records[variant] = {key_of(record): record for record in found}
        return self._records[variant]

    def add(self, variant: str, record: Record) -> None:
        self.records(variant)[key_of(record)] = record
        _append(self._raw(variant), record)

    def note(self, name: str, entry: Mapping[str, Any]) -> None:
        """Append to ``NAME.jsonl``."""
        _append(self.folder / f"{name}.jsonl", entry)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self._write(SUMMARY, summary)

    def log(self, variant: str) -> Path:
        return self.folder / "logs" / f"{variant}.log"

    def _raw(self, variant: str) -> Path:
        return self.folder / "raw" / f"{variant}.jsonl"

    def _set_aside(self, variant: str, code: str, redo: bool) -> None:
        raw = self._raw(variant)
        if not raw.exists():
            return
        if not redo:
            raise UserError(
                f"{raw} was measured with other code or flags of {variant}; pass --redo to set it aside "
                "and measure again, or give another --output"
            )
        (raw.parent / "outdated").mkdir(exist_ok=True)
        raw.rename(raw.parent / "outdated" / f"{variant}-{code}.jsonl")
        self._records.pop(variant, None)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        """At once or not at all."""
        draft = self.folder / f".{name}"
        draft.write_text(json.dumps(value, indent=2) + "\n")
        draft.replace(self.folder / name)


def versions() -> dict[str, str]:
    return {package: version(package) for package in PACKAGES}


def key_of(record: Record) -> Key:
    return Key(record["workload"], record["concurrency"], record["repeat"], record["row"])


def read_records(path: Path) -> list[Record]:
    """Of a raw file. A last line that a kill left half written is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    try:
        records = [json.loads(line) for line in whole.splitlines()]
        for record in records:
            key_of(record)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error!r}); remove it to measure again") from error
    return records


def _append(path: Path, entry: Mapping[str, Any]) -> None:
    with path.open("a") as out:
        out.write(json.dumps(entry) + "\n")


def _plain(value: Any) -> Any:
    """As JSON reads it back."""
    return json.loads(json.dumps(value))


def _leaves(value: Mapping[str, Any], at: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values."""
    found: list[tuple[str, Any]] = []
    for key, entry in value.items():
        nested = isinstance(entry, dict) and entry
        found += _leaves(entry, f"{at}{key}.") if nested else [(f"{at}{key}", entry)]
    return found
