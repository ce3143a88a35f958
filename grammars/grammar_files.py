"""Compiled grammars on disk: checked before they are believed, set aside where they are wrong."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xgrammar

FILE_FORMAT = 1

# Of xgrammar 0.2.7's serialized form, in which each rule repeats the automaton of all rules.
_PER_BYTE = 1.5
_PER_RULE_AND_CHARACTER = 3.0


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that masks are made for."""

    info: xgrammar.TokenizerInfo
    fingerprint: str

    @classmethod
    def of(cls, info: xgrammar.TokenizerInfo) -> Vocabulary:
        return cls(info, hashlib.sha256(info.serialize_json().encode()).hexdigest())


class GrammarFiles:
    """One file for each grammar in ``folder``, named after everything that decides on it.

    A file is a JSON line (format, checksum, what it is) and xgrammar's serialized form. One
    that does not hold what it should is renamed ``*.bad`` and kept for whoever looks into it.
    """

    def __init__(self, folder: Path, max_bytes: int, max_folder_bytes: int):
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_folder_bytes = max_folder_bytes

    def path(self, key: str, vocabulary: Vocabulary) -> Path:
        name = json.dumps(_identity(key, vocabulary), sort_keys=True)
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.grammar"

    def load(self, key: str, vocabulary: Vocabulary) -> xgrammar.CompiledGrammar | None:
        """The grammar under ``key``; ``None`` where there is no file or it is not to be believed."""
        path = self.path(key, vocabulary)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = _checked(data, _identity(key, vocabulary))
        if payload is not None:
            try:
                grammar = xgrammar.CompiledGrammar.deserialize_json(payload, vocabulary.info)
                os.utime(path)
                return grammar
            except (RuntimeError, ValueError, OSError):
                pass
        _set_aside(path)
        return None

    def store(self, key: str, vocabulary: Vocabulary, grammar: xgrammar.CompiledGrammar) -> bool:
        """Write ``grammar``, whole or not at all; returns whether it was small enough."""
        payload = grammar.serialize_json().encode()
        if len(payload) > self._max_bytes:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        header = {**_identity(key, vocabulary), "sha256": hashlib.sha256(payload).hexdigest()}
        self._make_room(len(payload))
        _write_whole(self.path(key, vocabulary), json.dumps(header).encode() + b"\n" + payload)
        return True

    def _make_room(self, coming: int) -> None:
        """Delete the files that were not used for longest, where the folder would grow too large."""
        found = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in self._folder.glob("*.grammar"))
        total = sum(size for _, size, _ in found) + coming
        for _, size, path in found:
            if total <= self._max_folder_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size


def estimated_bytes(grammar: xgrammar.CompiledGrammar) -> int:
    """About how large a file of ``grammar`` is: making one of a large grammar takes minutes."""
    ebnf = str(grammar.grammar)
    return int(
        _PER_BYTE * grammar.memory_size_bytes + _PER_RULE_AND_CHARACTER * ebnf.count("::=") * len(ebnf)
    )


def _identity(key: str, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "format": FILE_FORMAT,
        "xgrammar": version("xgrammar"),
        "vocabulary": vocabulary.fingerprint,
        "key": key,
    }


def _checked(data: bytes, identity: dict[str, Any]) -> str | None:
    """The payload of a file, where header and checksum are as they should be."""
    line, newline, payload = data.partition(b"\n")
    try:
        header = json.loads(line)
        expected = {**identity, "sha256": hashlib.sha256(payload).hexdigest()}
        return payload.decode() if newline and header == expected else None
    except ValueError:
        return None


def _write_whole(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        part = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def _set_aside(path: Path) -> None:
    try:
        os.replace(path, path.with_suffix(".bad"))
    except OSError:
        return  # another process was first
