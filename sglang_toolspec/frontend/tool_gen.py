"""``gen`` with tools: SGLang's own interpreter runs it, with a backend that knows the tools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sglang
from sglang.lang import api, interpreter
from sglang.lang.api import gen as _plain_gen
from sglang.lang.global_config import global_config
from sglang.lang.ir import SglExpr, SglGen

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.endpoint import Server, server_of
from sglang_toolspec.frontend.engine import logprobs
from sglang_toolspec.frontend.offer import Offer, make_offer
from sglang_toolspec.frontend.prompt import chat
from sglang_toolspec.frontend.reading import constraint
from sglang_toolspec.frontend.written import WrittenText
from sglang_toolspec.runtime.request import FIELD

_OTHER_SHAPES = ("regex", "json_schema", "dtype")


class ToolGen(SglGen):
    """A generation with an offer."""

    def __init__(self, plain: SglGen, offer: Offer):
        SglExpr.__init__(self)
        self.name = plain.name
        self.sampling_params = plain.sampling_params
        self.offer = offer


@functools.wraps(_plain_gen)
def gen(*args: Any, tools: Any = None, tool_choice: Any = None, **kwargs: Any) -> SglExpr:
    """``sgl.gen`` with ``tools``: functions, pydantic models, OpenAI or MCP tools, in any mixture.

    ``tool_choice`` is ``"auto"``, ``"required"``, ``"none"``, the name of the tool to call, or a list of
    names of which one is to be called. Raises ``UserError``.
    """
    plain = _plain_gen(*args, **kwargs)
    if tools is None:
        if tool_choice not in (None, "auto", "none"):
            raise UserError("tool_choice needs tools; give gen(tools=…)")
        return plain
    if not isinstance(plain, SglGen):
        raise UserError("choices and tools exclude each other; leave one out")
    offer = make_offer(tools, tool_choice)
    shapes = [name for name in _OTHER_SHAPES if getattr(plain.sampling_params, name) is not None]
    if shapes and offer.forced:
        raise UserError(f"{shapes[0]} and a forced tool_choice exclude each other; leave one out")
    install()
    return ToolGen(plain, offer)


def enable() -> None:
    """Let ``sgl.gen`` take ``tools`` too. Names that were imported from SGLang before stay as they are."""
    sglang.gen = api.gen = gen


class ToolBackend:
    """The backend of one ``ToolGen``: what SGLang's interpreter calls while it executes it."""

    def __init__(self, server: Server, expr: ToolGen):
        self._server = server
        self._name = expr.name
        self._offer = expr.offer

    def generate(self, s: Any, sampling_params: Any) -> tuple[Any, Any]:
        reply = self._server.ask(self._body(s, sampling_params))
        if isinstance(reply, list):
            told = [self._with_drafts(r["meta_info"]) for r in reply]
            return [self._written(r["text"]) for r in reply], told
        return self._written(reply["text"]), self._with_drafts(reply["meta_info"])

    def generate_stream(self, s: Any, sampling_params: Any) -> Iterator[tuple[str, Any]]:
        sent, meta_info = 0, None
        for reply in self._server.stream(self._body(s, sampling_params)):
            meta_info = reply["meta_info"]
            yield reply["text"][sent:], meta_info
            sent = len(reply["text"])
        # The interpreter has gathered the text by now, and has told nobody that it is whole.
        s.variables[self._name] = self._written(s.variables[self._name])
        if meta_info is not None:
            s.meta_info[self._name] = self._with_drafts(meta_info)

    def end_program(self, s: Any) -> None:
        """The program may be given up while this runs."""

    def _body(self, s: Any, sampling_params: Any) -> dict[str, Any]:
        """A body of ``/generate``."""
        asked = chat(s, self._offer, self._server.parsers)
        prompt = {"text": s.text_} if asked is None else {"input_ids": self._server.tokenize(asked)}
        params = {
            # Marks of calls are special tokens in some models; SGLang's OpenAI path keeps them too.
            "skip_special_tokens": self._offer.choice == "none",
            "spaces_between_special_tokens": global_config.spaces_between_special_tokens_in_out,
            **sampling_params.to_srt_kwargs(),
            **constraint(self._offer, self._server.parsers),
            "custom_params": {FIELD: self._offer.wire},
        }
        return {**prompt, "sampling_params": params, **logprobs(sampling_params)}

    def _written(self, text: str) -> WrittenText:
        return WrittenText.of(text, self._offer, self._server.parsers)

    def _with_drafts(self, meta_info: dict[str, Any]) -> dict[str, Any]:
        """With the sources of the reply's tokens, where the server tells them."""
        drafts = self._server.drafts(meta_info["id"])
        return meta_info if drafts is None else {**meta_info, FIELD: drafts}


def execute_gen(original: Callable[[Any, SglGen], None], executor: Any, expr: SglGen) -> None:
    """Around ``StreamExecutor._execute_gen``, which knows no other sampling parameters than its own."""
    if not isinstance(expr, ToolGen):
        original(executor, expr)
        return
    if executor.num_api_spec_tokens is not None:
        raise UserError("gen(tools=…) and num_api_spec_tokens exclude each other; leave one out")
    backend = executor.backend
    executor.backend = ToolBackend(server_of(backend), expr)
    try:
        original(executor, expr)
    finally:
        executor.backend = backend


@functools.cache
def install() -> None:
    """Programs run in processes that load no plugins."""
    original = interpreter.StreamExecutor._execute_gen

    @functools.wraps(original)
    def wrapped(executor: Any, expr: SglGen) -> None:
        execute_gen(original, executor, expr)

    interpreter.StreamExecutor._execute_gen = wrapped
