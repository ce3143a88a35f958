"""Algorithm 1 of the paper: one source a step, in its order."""

from types import SimpleNamespace

import pytest

from sglang_toolspec.grammars.states import State
from sglang_toolspec.runtime.drafters.paper import PaperDrafter
from sglang_toolspec.runtime.tree import DraftPath


class Source:
    def __init__(self, name, proposes=True, state=State.PARAMETER_NAME, spans=""):
        self.name = name
        self.proposes = proposes
        self.seen = []
        self.closed = False
        self.automaton = SimpleNamespace(state=state, spans=lambda: spans)

    def commit(self, tokens):
        self.seen += tokens

    def close(self):
        self.closed = True

    def propose(self):
        return [DraftPath((1,), (0.5,), (self.name,))] if self.proposes else []


def proposed(retrieval, schema, recycling):
    return {path.sources[0] for path in PaperDrafter(retrieval, schema, recycling).propose()}


@pytest.mark.parametrize(
    ("found", "state", "spans", "source"),
    [
        (True, State.PARAMETER_NAME, '"', "history"),
        (False, State.PARAMETER_NAME, "", "schema"),
        (False, State.TOOL_NAME, "", "schema"),
        (False, State.PARAMETER_VALUE, '", "unit": "', "schema"),
        (False, State.PARAMETER_VALUE, "", "recycling"),
        (False, State.OTHER, "", "recycling"),
    ],
)
def test_the_first_source_that_knows_decides_alone(found, state, spans, source):
    retrieval, schema = Source("history", found), Source("schema", True, state, spans)
    assert proposed(retrieval, schema, Source("recycling")) == {source}


def test_any_source_may_be_missing():
    assert proposed(None, None, None) == set()
    assert proposed(None, None, Source("recycling")) == {"recycling"}
    assert proposed(None, Source("schema"), None) == {"schema"}


def test_all_sources_follow_the_reply():
    sources = [Source("history"), Source("schema"), Source("recycling")]
    drafter = PaperDrafter(*sources)
    drafter.commit([4, 5])
    drafter.close()
    assert all(source.seen == [4, 5] and source.closed for source in sources)
