"""How long the automaton takes for a step: ``advance`` and ``spans``, and the drafts themselves.

``python -m tests.bench_automaton`` follows calls of 20 tools, four characters a step, and prints
microseconds: median and 99th percentile of the processor time of a step. With ``TOOLSPEC_DATA``
the tools are the first 20 of the largest catalogue, else those of the tests. A last line has the
slowest step of a tool with 512 parameters.
"""

import json
import statistics
import time
from functools import partial
from pathlib import Path

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import formats_for
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.tools import ToolSet
from tests.jsonschema_suite import data_folder
from tests.test_catalogues import calls_of
from tests.toolsets import ASSISTANT, STRING, tool, write_call

CHARACTERS = 4
ROUNDS = 5


def steps(tools: ToolSet, calls: list[tuple[str, dict, str]], form: str = "hermes") -> dict[str, list[float]]:
    """Microseconds of every step along ``calls``."""
    shapes, habits = CallShapes(tools), Habits()
    found: dict[str, list[float]] = {"advance": [], "spans": [], "continuations": []}
    for name, arguments, layout in calls:
        reader = ToolAutomaton(shapes, formats_for("qwen25"), habits)
        data = write_call(form, name, arguments, layout).encode()
        for at in range(0, len(data), CHARACTERS):
            timed(found["advance"], partial(reader.advance, data[at : at + CHARACTERS]))
            timed(found["spans"], reader.spans)
            timed(found["continuations"], reader.continuations)
    return found


def timed(into: list[float], work) -> None:
    began = time.thread_time_ns()
    work()
    into.append((time.thread_time_ns() - began) / 1000)


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 1),
        "p99": round(ordered[int(0.99 * len(ordered))], 1),
        "most": round(ordered[-1], 1),
    }


def twenty() -> ToolSet:
    folder = data_folder()
    if folder is None:
        return ToolSet.from_openai([*ASSISTANT, *(tool(f"tool_{i}", {"a": STRING}) for i in range(12))])
    lines = Path(folder, "mcp_tools.jsonl").read_text().splitlines()
    largest = max((json.loads(line)["tools"] for line in lines), key=len)
    return ToolSet.from_openai(largest[:20])


def main() -> None:
    tools = twenty()
    found = steps(tools, list(calls_of(tools)) * ROUNDS)
    step = [a + s for a, s in zip(found["advance"], found["spans"], strict=True)]
    report = {"steps": len(step), "advance and spans": summary(step)}
    report |= {name: summary(values) for name, values in found.items()}
    wide = ToolSet.from_openai([tool("wide", {f"key_{i:03}": STRING for i in range(512)})])
    arguments = {f"key_{i:03}": "x" for i in (0, 5, 200, 511)}
    report["512 parameters"] = {
        name: summary(values)
        for name, values in steps(wide, [("wide", arguments, "spaced")] * ROUNDS).items()
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
