"""Text to tokens and back, for the tokenizer of the target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import tokenizers
import xgrammar


class TokenCodec:
    """Bytes of every token id, and encoding of draft text.

    ``tokenizer`` is a Hugging Face tokenizer. ``stop_ids`` end a reply.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_ids: Iterable[int]):
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        self._bytes: list[bytes] = info.decoded_vocab
        self._tokenizer = tokenizer
        self._literal = _without_added_tokens(tokenizer)
        self.vocab_size = vocab_size
        self.stop_ids = frozenset(stop_ids)
        self.end_of_turn = tokenizer.eos_token_id
        self.encode = lru_cache(maxsize=8192)(self._encode)

    def _encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
        """Token ids of ``text``. ``literal`` spells added tokens out (``<tool_call>`` is then
        ``<``, ``tool``, ``_call``, ``>``), as models do in replies under a grammar mask."""
        if literal and self._literal is not None:
            return tuple(self._literal.encode(text, add_special_tokens=False).ids)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def text_of(self, token: int) -> bytes:
        """The bytes that ``token`` stands for; empty for stop tokens and unknown ids."""
        if token in self.stop_ids or not 0 <= token < len(self._bytes):
            return b""
        return self._bytes[token]


def _without_added_tokens(tokenizer: Any) -> Any | None:
    """A copy of a fast tokenizer that knows no added tokens; ``None`` for a slow one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    description = json.loads(backend.to_str())
    description["added_tokens"] = []
    description["post_processor"] = None
    return tokenizers.Tokenizer.from_str(json.dumps(description))
