"""The paper's states (section 3.2) of a point in a call: tool name ``q_t``, parameter name ``q_p``,
parameter value ``q_v``, everything else ``q_o``."""

from __future__ import annotations

from enum import Enum

from sglang_toolspec.grammars.block import Point
from sglang_toolspec.grammars.formats import ARGUMENT_KEYS, NAME_KEY
from sglang_toolspec.grammars.json_spot import Place, path_of
from sglang_toolspec.grammars.script import Json, Key, Name, Value


class State(Enum):
    OTHER = "q_o"
    TOOL_NAME = "q_t"
    PARAMETER_NAME = "q_p"
    PARAMETER_VALUE = "q_v"


_STATES: dict[type, State] = {
    Name: State.TOOL_NAME,
    Key: State.PARAMETER_NAME,
    Value: State.PARAMETER_VALUE,
}


def state_of(point: Point) -> State:
    step, spot = point.step, point.spot
    if spot is None or spot.place is Place.DONE:
        return _STATES.get(type(step), State.OTHER)
    path = spot.path
    if isinstance(step, Json) and step.whole_call:
        if spot.place is Place.IN_STRING and path == (NAME_KEY,):
            return State.TOOL_NAME
        if len(path) < 2 or path[0] not in ARGUMENT_KEYS:
            return State.OTHER
    if spot.place in (Place.KEY, Place.IN_KEY):
        return State.PARAMETER_NAME
    if spot.place in (Place.VALUE, Place.IN_STRING, Place.IN_SCALAR) and spot.frame is not None:
        return State.PARAMETER_VALUE
    return State.OTHER


def tool_of(point: Point) -> str:
    """The tool whose call is open; empty before its name is written."""
    frame = point.spot.frame if point.spot else None
    return point.tool or (frame.tool if frame else "")


def path_in_arguments(point: Point) -> tuple[str | int, ...]:
    """Keys and indices from the arguments to the value that is written."""
    if point.spot is None:
        return path_of(point.frame)
    path = point.spot.path
    return path[1:] if isinstance(point.step, Json) and point.step.whole_call else path
