"""How past calls are used: the setting."""

import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.retrieval import PAPER, Retrieval


def test_what_is_not_said_stays():
    text = "neighbours=5, continuations=16/8"
    assert Retrieval().changed(text, "x") == Retrieval(neighbours=5, continuations=(16, 8))
    assert PAPER.changed("suffixes=4", "x") == Retrieval(suffixes=(4, 4), whole=False)
    assert PAPER.changed("", "x") == PAPER


@pytest.mark.parametrize(
    "text",
    [
        "k=3", "neighbours", "neighbours=", "neighbours=0", "neighbours=101", "neighbours=-1", "neighbours=٣",
        "suffixes=7-5", "suffixes=1-2-3", "suffixes=0", "continuations=", "continuations=8/65",
        "continuations=" + "/".join("8" * 17), "continuations=8/", "neighbours=1;suffixes=2",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(UserError, match=r"^TOOLSPEC_RETRIEVAL has '.*'; write neighbours=1 to 100, "):
        Config.from_env({"TOOLSPEC_RETRIEVAL": text})


def test_each_recipe_has_its_own():
    assert Config().used_retrieval == Retrieval()
    assert Config(recipe="paper").used_retrieval == PAPER
    assert Config.from_env({"TOOLSPEC_RETRIEVAL": "neighbours=3"}).used_retrieval.neighbours == 3
