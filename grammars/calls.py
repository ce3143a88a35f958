"""The JSON shape of a call: an object with a tool's name and that tool's arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sglang_toolspec.grammars.formats import ARGUMENT_KEYS, NAME_KEY
from sglang_toolspec.grammars.schema import ANYTHING, MAX_VALUES, Arm, Schema, union
from sglang_toolspec.grammars.tools import ToolSet

MAX_NAMES = 256


class CallShapes:
    """Schemas of the calls to one tool set; shared, resolved as they are needed.

    ``reply`` is the schema of a reply that is no call but one JSON value.
    """

    def __init__(self, tools: ToolSet, reply: Schema | None = None):
        self._tools = tools.by_name
        self.tool_names = tuple(self._tools)
        self._arguments: dict[str, Schema] = {"": reply} if reply is not None else {}
        self._called: dict[tuple[str, ...], CallArm] = {}
        self.names = Arm(kinds=frozenset({"string"}), values=tuple(self._tools)[:MAX_VALUES])

    def arguments(self, tool: str) -> Schema:
        """The schema of the arguments object of ``tool``; anything for an unknown name."""
        if tool not in self._arguments:
            if tool not in self._tools:
                return ANYTHING
            declared = Schema.root(dict(self._tools[tool].parameters))
            arms = tuple(replace(arm, kinds=frozenset({"object"}), values=None) for arm in declared.arms)
            self._arguments[tool] = _Given(arms)
        return self._arguments[tool]

    def called(self, call: CallArm, tool: str) -> CallArm:
        """``call`` once the name of ``tool`` is written."""
        key = (*call.properties, tool)
        if key not in self._called:
            arguments = self.arguments(tool)
            keys = {k: s if k == NAME_KEY else arguments for k, s in call.properties.items()}
            named = replace(call, properties=keys, tool=tool)
            if tool not in self._tools:  # a reply may hold any number of these
                return named
            self._called[key] = named
        return self._called[key]

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Top-level parameters of all tools, each once, at most ``MAX_NAMES``."""
        names = dict.fromkeys(key for tool in self._tools.values() for key in tool.properties)
        return tuple(names)[:MAX_NAMES]

    @cached_property
    def any_arguments(self) -> Schema:
        """Where the arguments stand before the name."""
        return _Given(union(self.arguments(name) for name in list(self._tools)[:32]) or ANYTHING.arms)

    def call(self, arguments_key: str) -> tuple[Arm, ...]:
        """The alternatives of a ``{object}``: one, narrowed as soon as the name is written."""
        keys = {NAME_KEY: _Given((self.names,)), arguments_key: self.any_arguments}
        return (CallArm(kinds=frozenset({"object"}), properties=keys, required=frozenset(keys), shapes=self),)


@dataclass(frozen=True, eq=False)
class CallArm(Arm):
    shapes: CallShapes | None = None

    def member(self, key: str) -> Schema:
        declared = self.properties.get(key)
        if declared is None and key in ARGUMENT_KEYS:  # the other spelling
            return next(schema for name, schema in self.properties.items() if name != NAME_KEY)
        return declared or ANYTHING

    def narrowed(self, key: str, value: Any) -> Arm:
        if key != NAME_KEY or not isinstance(value, str) or self.shapes is None:
            return self
        return self.shapes.called(self, value)


class _Given(Schema):
    """A schema whose alternatives are known already."""

    def __init__(self, arms: tuple[Arm, ...]):
        super().__init__()
        self.__dict__["arms"] = arms
