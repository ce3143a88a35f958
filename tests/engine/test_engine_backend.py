"""Programs against an in-process engine say the same as against a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sglang as sgl

from tests.engine.client import Client

pytestmark = [pytest.mark.engine, pytest.mark.long]

PROGRAM = """
import json, sys
import sglang_toolspec
import sglang as sgl
from sglang_toolspec import EngineBackend, gen, tool_calls

SCHEMA = {"type": "object", "properties": {"loud": {"type": "boolean"}}, "required": ["loud"],
          "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "shout", "parameters": SCHEMA, "strict": True}}]

@sgl.function
def program(s, question):
    s += sgl.user(question)
    s += sgl.assistant(gen("call", max_tokens=60, tools=TOOLS, tool_choice="required"))
    s += sgl.user("And?")
    s += sgl.assistant(sgl.gen("plain", max_tokens=8))

def said(backend):
    rows = [{"question": question} for question in ("Loud?", "Or not?", "Then what?")]
    states = program.run_batch(rows, backend=backend, temperature=0)
    streamed = program.run("Loud?", backend=backend, temperature=0, stream=True)
    replies = [(s, tool_calls(s, "call")[:1]) for s in (*states, streamed)]
    told = [[s["call"], s["plain"], [c.arguments for c in calls]] for s, calls in replies]
    meta = states[0].get_meta_info("call")
    return told, meta["spec_accept_length"], sum(meta["toolspec"]["accepted"].values())

if __name__ == "__main__":
    engine = sgl.Engine(
        model_path=sys.argv[1], speculative_algorithm="TOOLSPEC", device="cpu", dtype="float32",
        attention_backend="torch_native", disable_cuda_graph=True, max_total_tokens=4096,
        tool_call_parser="qwen25", mem_fraction_static=0.95, log_level="error",
    )
    backend = EngineBackend(engine)
    told = said(backend)
    backend.close()
    after = engine.generate("Hi", {"max_new_tokens": 2})["meta_info"]["completion_tokens"]
    engine.shutdown()
    print("\\n" + json.dumps([told, after]))
"""


def test_an_engine_says_what_a_server_says(small_model: Path, small_toolspec: Client, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    env = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1"}
    run = subprocess.run(
        [sys.executable, str(script), str(small_model)], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    (told, accept_length, accepted), after = json.loads(run.stdout.strip().splitlines()[-1])

    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, "program.py", "exec"), names)
    expected, *_ = names["said"](sgl.RuntimeEndpoint(small_toolspec.url))
    assert told == json.loads(json.dumps(expected))
    assert accept_length > 1
    assert accepted > 0
    assert after == 2
