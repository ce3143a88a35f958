"""Values copied from the words of the conversation.

Text, not tokens, is matched, without regard to case: a value is rarely tokenised as in the
prompt. Values are offered word by word, since any word may be the last.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from functools import cached_property

from sglang_toolspec.grammars.guesses import NONE, Guess, Guesses
from sglang_toolspec.grammars.json_reader import unquoted
from sglang_toolspec.grammars.json_spot import Frame, Spot
from sglang_toolspec.grammars.schema import written

MAX_TEXT = 1 << 18
MAX_MATCHES = 12
MAX_NEEDLE = 40
"""Characters at the end of a value that are looked for."""
MAX_TRIES = 8
"""Words that are left out of them, one after another, until the rest stands somewhere."""
MAX_KNOWN = 256
MAX_KEY_WORDS = 8
MAX_RECENT = 4000
"""Characters at the end of the conversation in which values are looked for."""
MAX_STARTS = 6
MAX_CANDIDATES = 64
NEAR = 60

IN_WORD, AT_WORD_END, AT_TEXT_END = 0.03, 0.4, 0.7
"""Chances that a copied value ends within a word, after one, before a mark that ends a phrase."""
REST_OF_WORD, NEXT_WORD = 0.9, 0.5
FIRST = 0.6

# Every repetition is bounded or fails at once: the text is untrusted.
_WORD = re.compile(r"\w{1,64}")
_NEXT = re.compile(r"[ \-_.:/@,'&+]{1,2}\w{1,64}")
_DIGITS = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?|\.[0-9]{1,20}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,20})(?:\.[0-9]{1,20})?")
_PHRASE_END = re.compile(r"[\"')\]}<\n]|[.,;:!?](?:\s|\Z|<)")
_STARTS = re.compile(
    r"""(?<!\w)["'“‘](?P<quoted>[^"'“”‘’\n]{1,60})["'”’](?!\w)"""
    r"|(?P<code>\b\w+(?:[_@/]\w+)+(?:\.\w+)*)"
    r"|(?P<number>[+\-]?\d(?:[.,:/\-]?\w)*)"
    r"|(?P<name>[A-Z]\w*(?:(?: |\. |-|')[A-Z]\w*)*)"
)
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


class CopiedValues:
    """One conversation. ``text`` is what the model has read, the latest words last."""

    name = "copy"

    def __init__(self, text: str):
        self._text = text[-MAX_TEXT:]
        self._used: set[str] = set()
        self._ranked: dict[tuple[str | None, str], dict[str, float]] = {}
        """What may start a value, by its key and kind: scores, best first."""
        self._starts: dict[tuple[str | None, str], list[Guess]] = {}
        """The best of those that are not used yet."""
        self._known: dict[tuple[str, str], Guesses] = {}
        """How values go on, by what is looked for and kind: growing a draft asks again and again."""

    @cached_property
    def _folded(self) -> str:
        return _folded(self._text)

    def guess(self, spot: Spot, kind: str) -> Guesses:
        so_far = unquoted(spot.raw)
        if so_far:
            return self._going_on(_folded(so_far[-MAX_NEEDLE - 1 :]), kind)
        key = spot.frame.key if spot.frame is not None and not spot.frame.array else None
        if (key, kind) not in self._starts:
            self._starts[key, kind] = self._starting(key, kind)
        return Guesses(self._starts[key, kind], None)

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        self._used.add(text)
        self._starts.clear()

    def _going_on(self, end: str, kind: str) -> Guesses:
        """``end`` is that of the value so far."""
        if (end, kind) not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[end, kind] = self._after(self._matches(end), kind)
        return self._known[end, kind]

    def _after(self, matches: list[int], kind: str) -> Guesses:
        """What follows the places ``matches``."""
        if not matches:
            return NONE
        rests: Counter[str] = Counter()
        in_word = ends = 0
        for at in matches:
            rest = (_WORD if kind == "string" else _DIGITS).match(self._text, at)
            if rest is not None:
                in_word += 1
                rests[rest[0]] += 1
                continue
            ends += _PHRASE_END.match(self._text, at) is not None
            if kind == "string" and (following := _NEXT.match(self._text, at)) is not None:
                rests[following[0]] += 1
        count = len(matches)
        share = (REST_OF_WORD * in_word + NEXT_WORD * (count - in_word)) / count
        at_end = AT_TEXT_END if ends else AT_WORD_END
        ends_here = (IN_WORD * in_word + at_end * (count - in_word)) / count
        total = sum(rests.values())
        likely = rests.most_common(3)
        return Guesses([self._guess(rest, share * n / total) for rest, n in likely], ends_here)

    def _matches(self, end: str) -> list[int]:
        """Ends of the latest places where ``end`` starts a word; shorter ends of it where it
        stands nowhere (the value has left the text it copied)."""
        needle, inside = end, False
        if len(end) > MAX_NEEDLE:
            needle = end[1:]
            inside = end[0].isalnum()
        for _ in range(MAX_TRIES):
            found = self._places(needle, inside) if needle else []
            if found or " " not in needle:
                return found
            needle, inside = needle.partition(" ")[2], False
        return []

    def _places(self, needle: str, inside: bool) -> list[int]:
        """``inside`` says that ``needle`` may start inside a word."""
        found: list[int] = []
        end = len(self._folded)
        for _ in range(4 * MAX_MATCHES):
            at = self._folded.rfind(needle, 0, end)
            if at < 0 or len(found) == MAX_MATCHES:
                break
            if inside or at == 0 or not (self._folded[at - 1].isalnum() and needle[0].isalnum()):
                found.append(at + len(needle))
            end = at + len(needle) - 1
        return found

    @cached_property
    def _candidates(self) -> list[tuple[str, bool, str]]:
        """Things that may be values, the latest first: text, whether it is a number, and what stands
        before it, in lower case."""
        offset = max(0, len(self._text) - MAX_RECENT)
        found = _STARTS.finditer(self._text, offset)
        latest = deque(found, maxlen=MAX_CANDIDATES)
        return [
            (
                text := m[m.lastgroup or 0],
                m.lastgroup == "number" and _NUMBER.fullmatch(text) is not None,
                self._folded[max(0, m.start() - NEAR) : m.start()],
            )
            for m in reversed(latest)
        ]

    def _starting(self, key: str | None, kind: str) -> list[Guess]:
        """Values that may start here: those near a word of the key, and the latest, first."""
        if (key, kind) not in self._ranked:
            self._ranked[key, kind] = self._rank(key, kind)
        left = [pair for pair in self._ranked[key, kind].items() if pair[0] not in self._used]
        total = sum([score for _, score in left])
        return [self._guess(text, FIRST * score / total) for text, score in left[:MAX_STARTS]]

    def _rank(self, key: str | None, kind: str) -> dict[str, float]:
        words = [w.lower() for w in _KEY_WORD.findall(key or "")[:MAX_KEY_WORDS] if len(w) > 1]
        scores: dict[str, float] = {}
        for rank, (text, is_number, before) in enumerate(self._candidates):
            if text not in scores and (is_number or kind != "number"):
                near = sum([word in before for word in words])
                scores[text] = (1.0 + 2.0 * near) / (4.0 + rank)
        return dict(sorted(scores.items(), key=lambda pair: -pair[1]))

    def _guess(self, text: str, chance: float) -> Guess:
        return Guess(written(text)[1:-1], chance, source=self.name)


def _folded(text: str) -> str:
    """``text`` in lower case, and as long: its places are those of ``text``."""
    return text.replace("İ", "i").lower()
