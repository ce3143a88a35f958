"""What the client scripts ask, and how they tell what came of it.

The scripts run with the Python of the client environment, which knows nothing of this project:
``python tests/clients/openai_chat.py URL``. Each prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

PROMPTS = ("Flip to the left!", "你好 🙂 <tool_call>", 'Repeat: {"name": "flip"}')
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"side": {"type": "string", "enum": ["left", "right"]}, "loud": {"type": "boolean"}},
    "required": ["side", "loud"],
    "additionalProperties": False,
}
"""Strict, so that also a model of random weights calls the tool with arguments that fit."""
DESCRIPTION = "Flip to a side."
STOP = ["</tool_call>"]
"""Ends a call of such a model, which would go on for ever."""
KEEP_STOP = {"no_stop_trim": True}
"""SGLang's field that leaves the stop string in the reply."""
LIMIT = 400
SHORT = 24
"""Tokens of a reply without calls."""


def tell(ask: Callable[[str], Any]) -> None:
    """Print what ``ask`` gives for the server's URL, the script's first argument."""
    print(json.dumps(ask(sys.argv[1])))


def openai_tool(name: str = "flip") -> dict[str, Any]:
    function = {"name": name, "description": DESCRIPTION, "parameters": SCHEMA, "strict": True}
    return {"type": "function", "function": function}
