"""An in-process ``sgl.Engine`` as the backend of programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from fastapi import HTTPException
from sglang.lang.backend.base_backend import BaseBackend
from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.lang.chat_template import get_chat_template, get_chat_template_by_model_path
from sglang.lang.global_config import global_config

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.reading import Parsers
from sglang_toolspec.runtime.engine.endpoint import read_request

T = TypeVar("T")


class EngineBackend(BaseBackend):
    """``sgl.set_default_backend(EngineBackend(engine))``.

    The engine's event loop runs in a thread of this backend, so that programs can ask from many
    threads at once; use the engine only through programs from then on, until ``close``.
    """

    def __init__(self, engine: Any, chat_template_name: str | None = None):
        super().__init__()
        self._engine = engine
        # What the handler of ``/toolspec/requests`` reads of an HTTP request.
        state = SimpleNamespace(toolspec_manager=engine.tokenizer_manager)
        self._request: Any = SimpleNamespace(app=SimpleNamespace(state=state))
        model = engine.server_args.model_path
        self.chat_template = (
            get_chat_template(chat_template_name)
            if chat_template_name
            else get_chat_template_by_model_path(model)
        )
        self._thread = threading.Thread(target=engine.loop.run_forever, daemon=True, name="toolspec-engine")
        self._thread.start()

    def close(self) -> None:
        """Give the engine's event loop back."""
        self._engine.loop.call_soon_threadsafe(self._engine.loop.stop)
        self._thread.join()

    # What SGLang's interpreter asks of a backend.

    def get_model_name(self) -> str:
        return str(self._engine.server_args.model_path)

    def flush_cache(self) -> None:
        self._wait(self._engine.tokenizer_manager.flush_cache())

    def generate(self, s: Any, sampling_params: Any) -> tuple[str, dict[str, Any]]:
        reply = self.ask(_body(s, sampling_params))
        return reply["text"], reply["meta_info"]

    def generate_stream(self, s: Any, sampling_params: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        sent = 0
        for reply in self.stream(_body(s, sampling_params)):
            yield reply["text"][sent:], reply["meta_info"]
            sent = len(reply["text"])

    # What ``gen(tools=…)`` asks of a backend, as of ``endpoint.Endpoint``.

    @property
    def parsers(self) -> Parsers:
        value = self._engine.tokenizer_manager.config_value
        return Parsers(value("tool_call_parser"), value("reasoning_parser"))

    def tokenize(self, chat: dict[str, Any]) -> list[int]:
        """The prompt's tokens, by the code that serves ``/v1/tokenize``."""
        from sglang.srt.entrypoints.openai.protocol import TokenizeRequest
        from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingTokenize

        engine = self._engine
        serving = OpenAIServingTokenize(engine.tokenizer_manager, engine.template_manager)
        with _refusing():
            return list(serving._tokenize_chat_request(TokenizeRequest.model_validate(chat)))

    def ask(self, body: dict[str, Any]) -> Any:
        """The reply to a body of ``/generate``."""
        with _refusing():
            return self._wait(self._engine.async_generate(**_arguments(body)))

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Replies that grow."""
        with _refusing():
            replies = self._wait(self._engine.async_generate(**_arguments(body), stream=True))

        async def following() -> Any:
            return await anext(replies, None)

        with _refusing():
            while (reply := self._wait(following())) is not None:
                yield reply

    def drafts(self, rid: str) -> dict[str, Any] | None:
        """What became of a request's drafts, where the engine runs TOOLSPEC."""
        try:
            return self._wait(read_request(rid, self._request))
        except HTTPException:  # nothing is known
            return None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._engine.loop).result()


@contextmanager
def _refusing() -> Iterator[None]:
    """As a server's answer with status 400 has it."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"the engine refuses: {str(error).strip().partition(chr(10))[0]}") from error


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    """The body of ``/generate`` as the engine has it."""
    named = {"text": "prompt"}
    return {named.get(key, key): value for key, value in body.items() if key != "return_text_in_logprobs"}


def _body(s: Any, sampling_params: Any) -> dict[str, Any]:
    """As ``RuntimeEndpoint.generate`` has it."""
    RuntimeEndpoint._handle_dtype_to_regex(None, sampling_params)
    params = {
        "skip_special_tokens": global_config.skip_special_tokens_in_output,
        "spaces_between_special_tokens": global_config.spaces_between_special_tokens_in_out,
        **sampling_params.to_srt_kwargs(),
    }
    return {"text": s.text_, "sampling_params": params, **logprobs(sampling_params)}


def logprobs(sampling_params: Any) -> dict[str, Any]:
    """The fields of ``/generate`` that stand beside the sampling parameters."""
    fields = ("return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs")
    values = {name: getattr(sampling_params, name) for name in fields}
    return {name: value for name, value in values.items() if value is not None}
