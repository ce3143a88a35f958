"""Stop strings are found in whatever tokens a model writes them.

SGLang looks for them in as many tokens as its tokenizer would need. A mask, or the model itself, may spell
one in more: then plain decoding misses it, while a step that accepts all of it at once shows it.
"""

from __future__ import annotations

from typing import Any

LONGEST = 128
"""Bytes; for longer stop strings the window stays SGLang's, since it is decoded in each step."""


def widen_window(result: None, params: Any, *args: Any, **kwargs: Any) -> None:
    """After ``SamplingParams.normalize``: room for a stop string that is spelled in tokens of one byte."""
    lengths = [len(text.encode(errors="replace")) for text in params.stop_strs]
    fitting = [length for length in lengths if length <= LONGEST]
    params.stop_str_max_len = max([params.stop_str_max_len, *fitting])
