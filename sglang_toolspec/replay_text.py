"""Recorded replies and the tokens they are made of, for ``sglang-toolspec compile --replay``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.tree import DraftPath

MAX_PIECES = 1 << 30
_PIECE = re.compile(r"\w+|[^\S\n]+|\n|[^\w\s]")


class Alphabet(Protocol):
    """What replies are written in."""

    name: str
    size: int

    def encode(self, text: str) -> list[int]: ...

    def text_of(self, token: int) -> bytes: ...

    def drafter(self, automaton: ToolAutomaton) -> Drafter: ...


class Words:
    """Words and single marks, for want of a tokenizer; mutable, it numbers what it meets."""

    name = "words and marks (give --tokenizer for real tokens)"
    size = MAX_PIECES

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    def encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in _PIECE.findall(text)]

    def text_of(self, token: int) -> bytes:
        return self._pieces[token].encode(errors="replace")

    def drafter(self, automaton: ToolAutomaton) -> Drafter:
        return _WordDrafter(automaton, self)

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]


class _WordDrafter:
    """As ``SchemaDrafter``, which needs a tokenizer."""

    name = "schema"

    def __init__(self, automaton: ToolAutomaton, words: Words):
        self._automaton = automaton
        self._words = words

    def commit(self, tokens: list[int]) -> None:
        self._automaton.advance(b"".join(map(self._words.text_of, tokens)))

    def close(self) -> None:
        """Habits were noted as they were written."""

    def propose(self) -> list[DraftPath]:
        found = [(self._words.encode(c.text), c.weight) for c in self._automaton.continuations() if c.text]
        return [DraftPath(tuple(ids), (weight,) * len(ids), (self.name,) * len(ids)) for ids, weight in found]


class Tokens:
    """Tokens of a Hugging Face tokenizer."""

    def __init__(self, source: str):
        from sglang_toolspec.runtime.tokens import TokenCodec

        self.name = f"tokens of {source}"
        self._tokenizer = load_tokenizer(source)
        self.size = max(len(self._tokenizer), self._tokenizer.vocab_size)
        stops = {self._tokenizer.eos_token_id} - {None}
        self._codec = TokenCodec(self._tokenizer, self.size, stops)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def text_of(self, token: int) -> bytes:
        return self._codec.text_of(token)

    def drafter(self, automaton: ToolAutomaton) -> Drafter:
        from sglang_toolspec.runtime.drafters.schema import SchemaDrafter

        return SchemaDrafter(automaton, self._codec)


def load_tokenizer(source: str) -> Any:
    """From a model folder, a ``tokenizer.json``, a fetched model's name or a hub name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from sglang_toolspec.model import cached

    path = Path(source)
    try:
        if path.is_file():
            return PreTrainedTokenizerFast(tokenizer_file=str(path))
        return AutoTokenizer.from_pretrained(str(path if path.is_dir() else cached(source) or source))
    except UserError:
        raise
    except Exception as error:  # transformers raises whatever its parts raise
        reason = str(error).strip().split("\n", 1)[0]
        raise UserError(f"--tokenizer {source} cannot be loaded: {reason}") from error


def read_replies(file: Path, alphabet: Alphabet) -> Iterator[list[int]]:
    """Token ids of each line: ``{"text": …}``, or ``{"output_ids": […]}`` where tokens are real."""
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{file} is not UTF-8 text: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _reply(line, f"line {number} of {file}", alphabet)


def _reply(line: str, where: str, alphabet: Alphabet) -> list[int]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error
    text, ids = (value.get("text"), value.get("output_ids")) if isinstance(value, dict) else (None, None)
    if isinstance(ids, list) and not isinstance(alphabet, Words):
        if not all(isinstance(i, int) and 0 <= i < alphabet.size for i in ids):
            raise UserError(f"{where} has output_ids that are not ids of the tokenizer")
        return ids
    if not isinstance(text, str):
        raise UserError(f'{where} has no "text" of a reply (and "output_ids" need --tokenizer)')
    return alphabet.encode(text)
