"""What one request leaves for later ones of its tenant, and for no other's."""

import numpy as np
import pytest

from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.config import SOURCES, Config
from sglang_toolspec.runtime.request import ToolRequest
from sglang_toolspec.runtime.session import Faults
from tests import fakes
from tests.fakes import END

TOOLS = [{"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}]
WIRE = ToolRequest(ToolSet.from_openai(TOOLS)).to_wire()
VECTOR = np.array([1.0, 2.0, 3.0], np.float32)
SECRET = "xyzzy-4711"
CALL = f'{{"name": "note", "arguments": {{"text": "{SECRET}"}}}}'


def assembler(*sources, **settings):
    config = Config(sources=frozenset(sources or SOURCES), **settings)
    return Assembler(fakes.ByteCodec(), "qwen25", Faults(fakes.no_fault), config)


def opened(make, tenant="a", vector=VECTOR, prompt=b"Hello"):
    return make(DraftRequest(prompt=list(prompt), tools=WIRE, tenant=tenant, vector=vector))


def answer(make, text=CALL, ends=True, **request):
    session = opened(make, **request)
    session.commit(list(text.encode()) + [END] * ends)
    session.close()


def drafted(session, text, budget=128):
    """How much of ``text`` one draft spells, and by whom."""
    session.commit(list(text[:1].encode()))
    tree = session.draft(budget)
    nodes = tree.follow(text[1:].encode())
    return len(nodes), {tree.sources[node] for node in nodes}


def everything_drafted(session, text):
    """All bytes that are drafted while ``text`` is written one by one."""
    seen = []
    for byte in text.encode():
        session.commit([byte])
        tree = session.draft(128)
        paths = {0: b""}
        for node in range(1, len(tree)):
            paths[node] = paths[tree.parents[node]] + bytes([tree.tokens[node] % 256])
        seen += paths.values()
    return b"\n".join(seen)


def test_a_reply_to_the_same_prompt_is_drafted_whole():
    make = assembler("schema", "history")
    answer(make)
    length, by = drafted(opened(make), CALL)
    assert length >= 40
    assert "history" in by


def test_another_prompt_is_less_sure_but_helps_too():
    make = assembler("schema", "history")
    answer(make)
    length, by = drafted(opened(make, vector=np.array([3.0, -1.0, 0.5], np.float32)), CALL)
    assert length >= 10
    assert by


@pytest.mark.parametrize("recipe", ["full", "paper"])
def test_a_secret_of_one_tenant_is_never_drafted_for_another(recipe):
    make = assembler(recipe=recipe)
    for _ in range(3):
        answer(make, tenant="a")
    part = SECRET[2:].encode()
    assert part in everything_drafted(opened(make, tenant="a"), CALL)
    assert part not in everything_drafted(opened(make, tenant="b"), CALL[: CALL.index(SECRET) + 2])


def test_what_did_not_end_by_itself_is_not_kept():
    make = assembler("schema", "history")
    answer(make, ends=False)
    answer(make, text="No call at all.")
    _, by = drafted(opened(make), CALL)
    assert "history" not in by


def test_without_a_vector_there_is_no_history():
    make = assembler("schema", "history")
    answer(make, vector=None)
    answer(make)
    _, by = drafted(opened(make, vector=None), CALL)
    assert "history" not in by


def test_a_vector_that_is_no_vector_costs_nothing_else():
    make = assembler("schema", "history")
    for bad in (np.array([np.nan, 1, 2], np.float32), np.zeros(3, np.float32), np.ones(5, np.float32)):
        answer(make)
        answer(make, vector=bad)
        assert drafted(opened(make, vector=bad), CALL)[0] > 0


def test_candidates_are_the_tenants_own():
    make = assembler("recycling")
    ids = np.array([[ord("q"), *range(1, 8)]], np.int32)
    make.candidates("a").note([ord("p")], ids, np.array([[0.9] + [0.01] * 7], np.float32))
    assert drafted(opened(make, tenant="a"), "pq") == (1, {"recycling"})
    assert drafted(opened(make, tenant="b"), "pq") == (0, set())
