"""The per-request automaton: follows a reply and says what text may come next."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from sglang_toolspec.grammars.block import Block, Context, Point
from sglang_toolspec.grammars.block_writer import BlockWriter, after_block
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import JSON_REPLY, THOUGHTS, Format
from sglang_toolspec.grammars.growth import Continuation, Growth, Part, Start, is_open
from sglang_toolspec.grammars.guesses import Guesser, NoGuesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.layout import MAX_GAP, Layout
from sglang_toolspec.grammars.schema import Arm
from sglang_toolspec.grammars.script import Literal, next_block
from sglang_toolspec.grammars.states import State, path_in_arguments, state_of, tool_of

MIN_SHARE = 0.02
ENDS_AFTER_BLOCK = 0.9
ANOTHER_BLOCK = 0.1
MAX_REREAD = 256
"""Characters of a broken block that are read again, in case a call begins in them."""
MAX_BLOCK_TEXT = 2 * MAX_REREAD
"""Characters of a block that are kept: those, and a name or mark that did not fit."""
MAX_SPAN = 400
SURE = 0.9
"""A choice above this chance counts as no choice."""

_STARTS = re.compile(r'(?:\A|\n)[^\S\n]*[<\[{`"]|[<\[]')
"""Where a block of calls may begin: at a mark that begins a line, or at a tag."""
_TAGS = ("<", "[TOOL")


class ToolAutomaton:
    """Mutable, one per request. ``advance`` with committed bytes, then ask.

    ``thinks`` is what closes the thought in which the reply begins, if it begins in one. A call
    within a thought is followed in silence until it names one of the tools: models think of calls
    that they do not make, but some also make them there.

    Text that is no call costs one regular expression. Every reading of a block that still
    fits is followed; they part at the first character that tells their formats apart.
    """

    def __init__(
        self,
        shapes: CallShapes,
        formats: tuple[Format, ...],
        habits: Habits | None = None,
        guesser: Guesser | None = None,
        thinks: str = "",
    ):
        habits = Habits() if habits is None else habits
        guesser = NoGuesses() if guesser is None else guesser
        self._habits = habits
        self._contexts = [
            Context(form, shapes, habits.layouts.get(form.name, form.fresh_layout()).copy(), habits, guesser)
            for form in formats
        ]
        self._tagged = [c for c in self._contexts if (c.form.open or c.form.call).startswith(_TAGS)]
        """Those whose blocks may begin in the middle of a line."""
        self._thoughts = [Context(form, shapes, Layout(), habits, guesser) for form in THOUGHTS]
        """Read the marks that open a thought as if they were calls."""
        self._shapes = shapes
        self._thinks = thinks
        """What closes the thought that is open."""
        self._tail = ""
        """The last characters of that thought, which may begin what closes it."""
        self._writers = {id(context): BlockWriter(context) for context in self._contexts}
        self._priors = _priors(formats, habits)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._live: list[Block] = []
        self._block_text = ""
        self._block_size = 0
        self._fresh_line = True
        self._in_fence = False
        """Whether a fence is open that holds no call."""
        self._started = False
        self._last: Context | None = None
        """Of the block that has just ended, with nothing but space after it."""
        self._gap = ""
        """White space after that block."""
        self._ahead = ""
        """What is left of the last certain text while the reply follows it; empty for none."""
        self.calls_done = 0
        self.tool_names = shapes.tool_names
        """Those that may be called."""

    @property
    def point(self) -> Point | None:
        """Where the likeliest reading of an open call stands."""
        return next((block.point for block in self._calls()), None)

    @property
    def state(self) -> State:
        point = self.point
        return State.OTHER if point is None else state_of(point)

    @property
    def tool(self) -> str | None:
        """Name of the tool whose call is open, once it is written."""
        point = self.point
        return (tool_of(point) or None) if point is not None else None

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indices from the arguments to the value that is written."""
        point = self.point
        return () if point is None else path_in_arguments(point)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The schema's alternatives for the value that is written."""
        point = self.point
        if point is None or self.state is not State.PARAMETER_VALUE:
            return ()
        return point.spot.arms if point.spot else point.frame.member_arms if point.frame else ()

    @property
    def value_so_far(self) -> str:
        """As written, without its quotes."""
        point = self.point
        if point is None or self.state is not State.PARAMETER_VALUE:
            return ""
        return point.spot.raw if point.spot else point.raw

    @property
    def in_open_value(self) -> bool:
        """Whether a value has begun that only the model knows."""
        point = self.point
        return point is not None and self.state is State.PARAMETER_VALUE and is_open(point)

    def advance(self, data: bytes) -> None:
        """Follow committed bytes; never raises on malformed text."""
        text = self._decoder.decode(data)
        ahead = self._ahead
        self._ahead = ahead[len(text) :] if ahead and ahead.startswith(text) else ""
        while text:
            text = self._in_thought(text) if self._thinks else self._read(text)

    def spans(self) -> str:
        """The text that is certain from here, as far as it is."""
        if self._mid_character:
            return ""
        self._ahead = self._ahead or self._certain()
        return self._ahead

    def _certain(self) -> str:
        starts = self._starts_here()
        if len(starts) != 1 or starts[0].weight < SURE:
            return ""
        text, point, writer = starts[0].text, starts[0].point, starts[0].writer
        while len(text) < MAX_SPAN and not is_open(point):
            sure = max(writer.steps(point, SURE), key=lambda step: step.chance, default=None)
            if sure is None or sure.chance < SURE:
                break
            text += sure.text
            if sure.point is None:
                break
            point = sure.point
        return text

    def branches(self) -> list[Continuation]:
        """The choices at this very place, likeliest first."""
        found = [
            Continuation((Part(start.text + step.text, start.weight * step.chance, step.source),))
            for start in self._starts_here()
            for step in start.writer.steps(start.point)
        ]
        return sorted(found, key=lambda c: -c.weight)

    def continuations(self) -> list[Continuation]:
        """What may come next, likeliest first; empty where nothing is known."""
        if self._mid_character:
            return []
        found = Growth(self._starts_here()).continuations()
        if self._last is not None:
            found.insert(0, Continuation((Part("", ENDS_AFTER_BLOCK),), ends=True))
        return found

    @property
    def _mid_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def _starts_here(self) -> list[Start]:
        if self._live:
            calls = list(self._calls())
            shares = [self._priors[block.context.form.name] for block in calls]
            starts = [
                Start(share / sum(shares), block.point, self._writers[id(block.context)])
                for block, share in zip(calls, shares, strict=True)
                if block.is_call
            ]
        elif self._last is not None:
            point = after_block(self._last, 0)
            if self._gap and isinstance(point.step, Literal):
                point = point._replace(raw=self._gap)
            starts = [Start(ANOTHER_BLOCK, point, self._writers[id(self._last)])]
        elif not self._started and not self._thinks:
            total = sum(self._priors.values())
            starts = [
                Start(self._priors[c.form.name] / total, c.start(), self._writers[id(c)])
                for c in self._contexts
            ]
        else:
            return []
        return [start for start in starts if start.weight > MIN_SHARE]

    def _read(self, text: str) -> str:
        """Consume some of ``text``; returns the rest."""
        return self._in_block(text) if self._live else self._in_text(text)

    def _in_thought(self, text: str) -> str:
        """Consume text up to the end of the thought; returns the rest."""
        closing, seen = self._thinks, self._tail + text
        end = seen.find(closing) + len(closing) - len(self._tail) if closing in seen else len(text)
        thought, rest = text[:end], text[end:]
        self._tail = seen[1 - len(closing) :]
        while thought:
            thought = self._read(thought)
        if closing in seen:  # whatever is open belongs to the thought, and the reply begins anew
            self._live, self._last = [], None
            self._thinks = self._tail = ""
            self._started, self._fresh_line, self._in_fence = False, True, False
        return rest

    def _calls(self) -> Iterator[Block]:
        """The readings of a block that may count: in a thought, those that name a tool."""
        for block in self._live:
            in_silence = self._thinks and tool_of(block.point) not in (self._shapes.names.values or ())
            if id(block.context) in self._writers and not in_silence:
                yield block

    def _in_text(self, text: str) -> str:
        """Consume text outside blocks; returns what stands after the first mark of one."""
        for at, readings in self._openings(text):
            fits = [block for block in readings if not block.feed(text[at]) and not block.broken]
            if fits:
                self._live, self._last = fits, None
                self._block_text, self._block_size = text[at], 1
                self._started, self._fresh_line = True, False
                return text[at + 1 :]
        _, newline, line = text.rpartition("\n")
        self._fresh_line = (bool(newline) or self._fresh_line) and not line.strip()
        if text.strip():
            self._started, self._last = True, None
        elif self._last is not None:
            self._gap = (self._gap + text)[:MAX_GAP]
        return ""

    def _openings(self, text: str) -> Iterator[tuple[int, list[Block]]]:
        """Where a block may begin, with its readings."""
        first = len(text) - len(text.lstrip())
        if self._last is not None and first < len(text) and _has_joint(self._last.form):
            joined = Block(self._last, next_block(self._last.form))
            yield first, [joined, *self._readings(text[first])]
        for found in _STARTS.finditer(text):
            begins_line = found[0][0] == "\n" or (found.start() == 0 and self._fresh_line)
            at = found.end() - 1
            if begins_line and text[at] == "`" and self._in_fence:
                self._in_fence = False
            else:
                yield at, self._readings(text[at], only_tags=not begins_line)

    def _readings(self, mark: str, only_tags: bool = False) -> list[Block]:
        """Of a block that begins with ``mark``."""
        contexts = self._tagged if only_tags or self._thinks else self._contexts
        thoughts = () if self._thinks else self._thoughts
        return [Block(context) for context in (*contexts, *thoughts) if mark in _marks(context.form)]

    def _in_block(self, text: str) -> str:
        """Feed all readings; returns the text that they have not read."""
        text, later = self._to_parting(text)
        rests = [(block, block.feed(text)) for block in self._live]
        if ended := [(block, rest) for block, rest in rests if block.ended]:
            block, rest = max(ended, key=lambda pair: len(pair[1]))
            self._end(block)
            return rest + later
        fits = [block for block, _ in rests if not block.broken]
        if fits:
            self._live = [block for block in fits if len(fits) == 1 or not block.misspelt] or fits
            self._block_text = (self._block_text + text)[:MAX_BLOCK_TEXT]
            self._block_size += len(text)
            return later
        return self._give_up(text, min((rest for _, rest in rests), key=len)) + later

    def _to_parting(self, text: str) -> tuple[str, str]:
        """``text`` up to where readings may part by a key, and the rest."""
        at = text.find('"') + 1 if len(self._live) > 1 else 0
        return (text[:at], text[at:]) if at else (text, "")

    def _give_up(self, text: str, rest: str) -> str:
        """Drop all readings; returns what to read again.

        A call may begin inside a block that turned out to be none (a fence that holds prose).
        """
        self._live = []
        self._in_fence = self._in_fence or (self._block_text + text).startswith("```")
        if self._block_size + len(text) - len(rest) <= MAX_REREAD:
            return (self._block_text + text)[1:]
        return rest

    def _end(self, block: Block) -> None:
        if id(block.context) not in self._writers:
            self._live, self._last, self._thinks = [], None, THOUGHTS[block.context.form]
            return
        self.calls_done += block.point.calls
        self._habits.wrote_call(block.context.form.name, block.context.layout)
        self._live, self._last, self._gap = [], block.context, ""
        self._fresh_line = True
        for name in self._priors:
            self._priors[name] *= 4.0 if name == block.context.form.name else 0.25


def _marks(form: Format) -> str:
    """Characters that a block may begin with."""
    return '{["' if form is JSON_REPLY else (form.open or form.call)[0]


def _has_joint(form: Format) -> bool:
    """Whether a mark of its own joins a block to the one before it."""
    return not form.close and bool(form.between.strip())


def _priors(formats: tuple[Format, ...], habits: Habits) -> dict[str, float]:
    return {f.name: habits.formats.get(f.name, 0.0) + 1.0 / (1 + 2 * i) for i, f in enumerate(formats)}
