"""Tools on their way from an HTTP request to the scheduler, as one JSON string.

Both functions run on the HTTP side (SGLang's tokenizer manager process). A ``ValueError``
there becomes HTTP 400, so nothing malformed reaches the scheduler's receive loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.request import FIELD, ToolRequest

logger = logging.getLogger(__name__)


def attach_chat_tools(result: Any, serving: Any, request: Any, raw_request: Any = None) -> Any:
    """After ``OpenAIServingChat._convert_to_internal_request``: add the request's tools.

    The prompt is left as it is. Tools that SGLang accepts and we do not (two of one name,
    a schema nested too deep) are served without schema drafts.
    """
    adapted, _ = result
    tools = serving._effective_tools(request)
    if not tools or FIELD in (adapted.sampling_params.get("custom_params") or {}):
        return result
    try:
        wire = _chat_wire(tools, request.tool_choice)
    except UserError as error:
        logger.warning("toolspec: this request decodes without schema drafts: %s", error)
        return result
    params = dict(adapted.sampling_params.get("custom_params") or {})
    adapted.sampling_params["custom_params"] = {**params, FIELD: wire}
    return result


def _chat_wire(tools: list[Any], tool_choice: Any) -> str:
    plain = [
        {"name": t.function.name, "parameters": t.function.parameters or {}}
        for t in tools
        if t.type == "function"
    ]
    choice = tool_choice if isinstance(tool_choice, str) else {"name": tool_choice.function.name}
    return ToolRequest.from_object({"tools": plain, "tool_choice": choice}).to_wire()


def check_custom_params(
    manager: Any, obj: Any, *args: Any, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before ``TokenizerManager._create_tokenized_object``: validate what will be sent.

    ``custom_params.toolspec`` may be an object (``{"tools": …, "tool_choice": …}``) or its
    JSON text. Any other value must be one that SGLang's transport can decode.
    """
    sampling = getattr(obj, "sampling_params", None)
    if not isinstance(sampling, Mapping) or sampling.get("custom_params") is None:
        return None
    params = sampling["custom_params"]
    if not isinstance(params, Mapping):
        raise UserError(f"/custom_params must be an object, not {type(params).__name__}")
    checked = dict(params)
    if FIELD in checked:
        value = checked[FIELD]
        request = ToolRequest.from_wire(value) if isinstance(value, str) else ToolRequest.from_object(value)
        checked[FIELD] = request.to_wire()
    for key, value in checked.items():
        if not isinstance(key, str) or not _transportable(value):
            raise UserError(
                f"/custom_params/{key} must be a number, a string, true, false, null, or a flat list or "
                "object of these; send anything else as JSON text"
            )
    obj.sampling_params = {**sampling, "custom_params": checked}
    return None


def _transportable(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_scalar, value))
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_scalar(k) and _is_scalar(v) for k, v in value.items())
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    """A scalar that msgpack can hold: integers of 64 bits, strings that are valid UTF-8."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    return value is None or isinstance(value, float)
