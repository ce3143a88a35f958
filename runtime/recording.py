"""The file of recorded requests: what ``--toolspec-record`` writes and ``replay`` reads.

JSON Lines: a ``Header`` for each start of a server, then a ``Recorded`` for each finished request.
The file holds prompts and replies.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import shown
from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.drafters.recycling import CANDIDATES

FORMAT: Literal[1] = 1
MAX_LINE = 1 << 24
"""Bytes of one line."""
MAX_BYTES = 1 << 27
"""Bytes of the lines that are read at once; in memory they take about ten times as much."""
MAX_VOCABULARY = 1 << 24
MAX_WIDTH = 4096
MAX_VECTOR = 1 << 18
"""Characters of a vector in base64."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
Likely = Annotated[
    list[tuple[TokenId, Annotated[float, Field(ge=0, le=1.01)]]],
    Field(min_length=CANDIDATES, max_length=CANDIDATES),
]
_HEADER_KEY = b'"toolspec_record"'


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Header(_Line):
    """The server that wrote the lines below.

    ``model``: as it was given. ``tokenizer``: ``TokenCodec.fingerprint``. ``stop_ids``: tokens that
    end a reply. ``parser``: its ``--tool-call-parser``. ``width``: most nodes of a draft tree.
    """

    toolspec_record: Literal[1]
    model: str
    tokenizer: str
    vocab_size: Annotated[int, Field(ge=1, le=MAX_VOCABULARY)]
    stop_ids: TokenIds
    parser: str | None = None
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]


class Recorded(_Line):
    """One request. ``tools``, ``json_schema`` and ``masked`` are those of its ``DraftRequest``.

    ``stopped``: a stop token ended it, not a limit, a stop string or an abort. ``tenant``: a hash, another
    one after each start of the server. ``candidates``: for the first of the output tokens what the
    target thought likely after each, ids with chances. ``vector``: the hidden state of the last
    prompt token, its direction only, float16 in base64.
    """

    prompt_ids: TokenIds
    output_ids: Annotated[TokenIds, Field(min_length=1)]
    stopped: bool
    tools: str | None = None
    json_schema: str | None = None
    masked: bool = False
    tenant: str = ""
    candidates: Annotated[list[Likely], Field(fail_fast=True)] | None = None
    vector: Annotated[str, Field(max_length=MAX_VECTOR)] | None = None

    @field_validator("vector")
    @classmethod
    def _is_vector(cls, text: str | None) -> str | None:
        if text is not None:
            vector_of(text)
        return text

    @property
    def request(self) -> DraftRequest:
        vector = None if self.vector is None else vector_of(self.vector)
        return DraftRequest(
            self.prompt_ids,
            self.tools,
            self.json_schema,
            masked=self.masked,
            may_think=not self.masked,
            tenant=self.tenant,
            vector=vector,
        )

    def fits(self, vocab_size: int) -> bool:
        """Whether the ids of its texts are all in a vocabulary of that size."""
        return max(self.output_ids) < vocab_size and max(self.prompt_ids, default=0) < vocab_size

    def thought_likely(self, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Candidates after the output tokens ``start`` to before ``stop``, or as many as are known, and
        their chances, both ``[tokens, 8]``."""
        known = np.array((self.candidates or [])[start:stop]).reshape(-1, CANDIDATES, 2)
        return known[..., 0].astype(np.int32), known[..., 1].astype(np.float32)


def vector_of(text: str) -> NDArray[np.float32]:
    """The inverse of ``vector_text``; raises ``ValueError``."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float32)


def vector_text(vector: NDArray[np.float32]) -> str | None:
    """``None`` for a vector without a direction."""
    largest = np.abs(vector).max(initial=0.0)
    if not 0 < largest < np.inf:  # nor NaN
        return None
    return base64.b64encode((vector / largest).astype("<f2").tobytes()).decode()


@dataclass(frozen=True)
class Run:
    """What one start of a server recorded."""

    header: Header
    replies: list[Recorded] = field(default_factory=list)


def read_runs(file: Path, first: int = 0, last: int | None = None) -> list[Run]:
    """Replies ``first`` (counted from 0) to before ``last`` (``None``: all), by run.

    Raises ``UserError`` with the line that is wrong, and where too much is chosen.
    """
    runs: list[Run] = []
    number = size = 0
    for where, line in _lines(file):
        parsed = _parsed(line, where)
        if isinstance(parsed, Header):
            runs.append(Run(parsed))
            continue
        if not runs:
            raise UserError(f"{where} is a reply before any header; record with --toolspec-record")
        if last is not None and number >= last:
            break
        if number >= first:
            if not parsed.fits(runs[-1].header.vocab_size):
                raise UserError(f"{where} has token ids outside the vocabulary that its header names")
            size += len(line)
            if size > MAX_BYTES:
                raise UserError(f"{file} has over {MAX_BYTES >> 20} MiB of replies; choose some with --rows")
            runs[-1].replies.append(parsed)
        number += 1
    return [run for run in runs if run.replies]


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """Each line that is not empty, after its name for a message."""
    try:
        with file.open("rb") as handle:
            for number in count(1):
                line = handle.readline(MAX_LINE + 1)
                if not line:
                    return
                where = f"line {number} of {file}"
                if len(line) > MAX_LINE:
                    raise UserError(f"{where} is longer than {MAX_LINE >> 20} MiB")
                if line.strip():
                    yield where, line
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def _parsed(line: bytes, where: str) -> Header | Recorded:
    kind: type[Header | Recorded] = Header if _HEADER_KEY in line else Recorded
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        what = "header" if kind is Header else "recorded request"
        at = " at " + shown("".join(f"/{step}" for step in fault["loc"])) if fault["loc"] else ""
        raise UserError(f"{where} is no {what}{at}: {fault['msg']}") from error
