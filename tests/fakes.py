"""Requests and a codec without a model or an engine: what a ``SessionFactory`` reads of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.recorder import RecordFile
from sglang_toolspec.runtime.request import FIELD, ToolRequest
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tree import DraftTree
from tests.random_trees import path_of

END = 256


class ByteCodec:
    """One token a byte, and an end token."""

    vocab_size = 257
    stop_ids = frozenset([END])
    end_of_turn = END
    fingerprint = "bytes"

    def encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
        return tuple(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(t for t in tokens if t < END).decode(errors="replace")

    def text_of(self, token: int) -> bytes:
        return bytes([token]) if 0 <= token < 256 else b""


class Request(SimpleNamespace):
    """The fields of SGLang's ``Req`` that are read; ids are ``array("q")`` as there."""

    __hash__ = object.__hash__

    def finished(self) -> bool:
        return self.finished_reason is not None

    @property
    def output_ids_through_stop(self) -> Any:
        return self.output_ids[: self.finished_len]


def request(prompt: str = "Hello", tools: Any = None, choice: str = "auto", **fields: Any) -> Request:
    """With ``tools`` in OpenAI's form, sent as ``custom_params``."""
    custom = None
    if tools is not None:
        custom = {FIELD: ToolRequest(ToolSet.from_openai(tools), choice).to_wire()}
    defaults = {
        "rid": "r", "origin_input_ids": array("q", list(prompt.encode())), "output_ids": array("q"),
        "grammar": None, "extra_key": None, "cache_salt": None, "finished_len": None,
        "finished_reason": None, "sampling_params": SimpleNamespace(custom_params=custom, json_schema=None),
    }  # fmt: skip
    return Request(**(defaults | fields))


def no_fault(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def factory(
    *,
    parser: str = "qwen25",
    faults: Faults | None = None,
    codec: Any = None,
    records: RecordFile | None = None,
    vector_of: Any = lambda req: None,
    **settings: Any,
) -> SessionFactory:
    """``settings`` are those of ``Config``."""
    faults = Faults(no_fault) if faults is None else faults
    return SessionFactory(codec or ByteCodec(), parser, faults, Config(**settings), vector_of, records)


def texts_of(tree: DraftTree) -> list[str]:
    """The text of each path to a leaf, without an end token."""
    leaves = set(range(len(tree))) - set(tree.parents)
    paths = [path_of(tree.parents, leaf)[1:] for leaf in sorted(leaves)]
    return [
        bytes(tree.tokens[i] for i in path if tree.tokens[i] < 256).decode(errors="replace") for path in paths
    ]


def followed(make: SessionFactory, req: Any, reply: str, chunk: int = 8, budget: int = 64) -> list[DraftTree]:
    """The trees along ``reply``, a few bytes a step; the session is closed at its end."""
    session, data = make(req), reply.encode()
    trees = [session.draft(budget)]
    for at in range(0, len(data), chunk):
        session.commit(data[at : at + chunk])
        trees.append(session.draft(budget))
    session.close()
    return trees
