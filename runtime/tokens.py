"""Text to tokens and back, for the tokenizer of the target."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import tokenizers
import xgrammar

_ANCHORS = ("", "\n", "\n\n", "}", ")")
_ENDS_AFTER_CALLS = ("<|observation|>",)
"""Tokens that end a reply with calls, where the end-of-text token ends others (GLM)."""
_PROBES = ("city", '"city": "', "{", " x", "}}", "12")
_WORD_START = re.compile(r"(?<=\S)(?= )")
_SPACE_WITHIN = re.compile(r"\S ")
MAX_WORDS = 1 << 14
"""Words whose tokens are kept."""


class TokenCodec:
    """Bytes of every token id, and encoding of draft text.

    ``tokenizer`` is a Hugging Face tokenizer. ``stop_ids`` end a reply.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_ids: Iterable[int]):
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        self.stop_ids = frozenset(stop_ids)
        self._bytes: list[bytes] = info.decoded_vocab
        self._by_words = _SPACE_WITHIN.search(b"\n".join(self._bytes).decode(errors="replace")) is None
        """Whether no token holds a space behind other text: then texts may be encoded word by word."""
        texts = _Texts(enumerate(self._bytes))
        texts.update(dict.fromkeys(self.stop_ids, b""))
        self.text_of: Callable[[int], bytes] = texts.__getitem__
        """The bytes that a token stands for; empty for stop tokens and unknown ids. Not a method, since
        it is asked of every token of every draft."""
        self._tokenizer = tokenizer
        self._fast = getattr(tokenizer, "backend_tokenizer", None)
        self._literal = _without_added_tokens(self._fast) if self._fast is not None else None
        self._added = _added_tokens(self._fast)
        self.vocab_size = vocab_size
        known = map(tokenizer.convert_tokens_to_ids, _ENDS_AFTER_CALLS)
        self.end_of_turn = next((end for end in known if end in self.stop_ids), tokenizer.eos_token_id)
        self._anchors = {literal: self._anchors_for(literal) for literal in (False, True)}
        self._word = lru_cache(MAX_WORDS)(self._encode)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the bytes of all tokens: equal where ids mean the same."""
        digest = hashlib.sha256()
        for token in self._bytes:
            digest.update(len(token).to_bytes(4) + token)
        return digest.hexdigest()

    def encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
        """Token ids of ``text`` as they are written in the middle of a reply.

        ``literal`` spells added tokens out (``<tool_call>`` is then ``<``, ``tool``, ``_call``,
        ``>``), as models do in replies under a grammar mask.
        """
        # Texts are new at every step; their words (` "unit":`) come again and again.
        words = _WORD_START.split(text) if self._by_words else (text,)
        return tuple(chain.from_iterable([self._word(word, literal) for word in words]))

    def _encode(self, text: str, literal: bool) -> tuple[int, ...]:
        tokens = self._continuing(text, literal)
        if literal or self._added is None or self._spelt(tokens) == text.encode():
            return tokens
        # Some tokenizers see the start of a text behind an added token too.
        parts = filter(None, self._added.split(text))
        return tuple(token for part in parts for token in self._continuing(part, literal))

    def _continuing(self, text: str, literal: bool) -> tuple[int, ...]:
        for anchor, before in self._anchors[literal]:
            whole = self._plain(anchor + text, literal)
            if whole[: len(before)] == before:
                return whole[len(before) :]
        return self._plain(text, literal)

    def _plain(self, text: str, literal: bool) -> tuple[int, ...]:
        fast = self._literal if literal else self._fast
        if fast is not None:  # much faster than through the Hugging Face wrapper
            return tuple(fast.encode(text, add_special_tokens=False).ids)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _anchors_for(self, literal: bool) -> list[tuple[str, tuple[int, ...]]]:
        """Texts to put before a continuation, so that the tokenizer sees no start of a text, and
        their tokens; several, since one may merge with what comes after it.

        SentencePiece tokenizers put a space before a text; behind an anchor they do not.
        """

        def keeps(before: tuple[int, ...], anchor: str, probe: str) -> bool:
            whole = self._plain(anchor + probe, literal)
            return whole[: len(before)] == before and self._spelt(whole[len(before) :]) == probe.encode()

        tried = [(anchor, self._plain(anchor, literal)) for anchor in _ANCHORS]
        return [(a, before) for a, before in tried if all(keeps(before, a, probe) for probe in _PROBES)]

    def _spelt(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self.text_of, tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a prompt, special tokens included."""
        if self._fast is not None:  # much faster than through the Hugging Face wrapper
            return str(self._fast.decode(list(tokens), skip_special_tokens=False))
        return str(self._tokenizer.decode(tokens))


class _Texts(dict[int, bytes]):
    def __missing__(self, token: int) -> bytes:
        return b""


def _without_added_tokens(fast: Any) -> Any:
    """A copy of a fast tokenizer that knows no added tokens."""
    description = json.loads(fast.to_str())
    description["added_tokens"] = []
    description["post_processor"] = None
    return tokenizers.Tokenizer.from_str(json.dumps(description))


def _added_tokens(fast: Any) -> re.Pattern[str] | None:
    """Finds, as groups, the added tokens of a fast tokenizer; ``None`` where it has none."""
    if fast is None:
        return None
    added = [token.content for token in fast.get_added_tokens_decoder().values()]
    longest_first = sorted(filter(None, added), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
