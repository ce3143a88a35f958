"""Text to tokens and back, for the tokenizer of the target."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import xgrammar


class TokenCodec:
    """Bytes of every token id, and encoding of draft text.

    ``tokenizer`` is a Hugging Face tokenizer. ``stop_ids`` end a reply.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_ids: Iterable[int]):
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        self._bytes: list[bytes] = info.decoded_vocab
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.stop_ids = frozenset(stop_ids)
        self.end_of_turn = tokenizer.eos_token_id
        self.encode = lru_cache(maxsize=8192)(self._encode)

    def _encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
        """Token ids of ``text``. ``literal`` spells special tokens out, as a reply under a
        grammar mask has to (``<tool_call>`` is then ``<``, ``tool``, ``_call``, ``>``)."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=literal))

    def text_of(self, token: int) -> bytes:
        """The bytes that ``token`` stands for; empty for stop tokens and unknown ids."""
        if token in self.stop_ids or not 0 <= token < len(self._bytes):
            return b""
        return self._bytes[token]
