"""Compiled grammars on disk: believed only where everything about them is right."""

from dataclasses import replace

import pytest
import xgrammar

from sglang_toolspec.grammars.cache import GrammarCache, Limits, constraint_recipe, draft_recipe
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.layout import SPACED
from sglang_toolspec.grammars.tools import ToolSet
from tests.test_cache import forced, literal, vocabulary
from tests.toolsets import GET_TIME, GET_WEATHER

ALWAYS_STORED = Limits(read_bytes_per_second=float("inf"))
NEVER_STORED = Limits(read_bytes_per_second=1.0)


def stored(folder, recipe, words=None, limits=ALWAYS_STORED):
    cache = GrammarCache(words, folder, limits)
    cache.compile_now([recipe])
    return cache


def test_a_grammar_survives_a_restart(tmp_path):
    tools = ToolSet.from_openai([GET_TIME, GET_WEATHER])
    recipe = draft_recipe(tools, FORMATS["hermes"], SPACED)
    assert stored(tmp_path, recipe).counts.stored == 1
    again = stored(tmp_path, recipe)
    assert (again.counts.loaded, again.counts.compiled) == (1, 0)
    assert forced(again, recipe) == '<tool_call>\n{"name": "get_'


def test_a_file_belongs_to_one_vocabulary(tmp_path):
    recipe = constraint_recipe(ToolSet.from_openai([GET_TIME]), "qwen25", "required", True)
    for words in (vocabulary(b"ab"), vocabulary(b"ba")):
        assert stored(tmp_path, recipe, words).counts.loaded == 0
    assert stored(tmp_path, recipe, vocabulary(b"ab")).counts.loaded == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b'"sha256": "', b'"sha256": "0', 1),
        lambda data: data.replace(b'"format": 1', b'"format": 2', 1),
        lambda data: data[:-9] + b"x" + data[-8:],
        lambda data: b"\xff" + data,
        lambda data: data.replace(b"\n", b"", 1),
    ],
    ids=["cut", "empty", "checksum", "format", "payload", "not text", "no header"],
)
def test_a_bad_file_is_set_aside_and_made_again(tmp_path, spoil):
    recipe = literal("a")
    stored(tmp_path, recipe)
    (file,) = tmp_path.iterdir()
    bad = spoil(file.read_bytes())
    file.write_bytes(bad)
    again = stored(tmp_path, recipe)
    assert (again.counts.loaded, again.counts.compiled) == (0, 1)
    assert forced(again, recipe) == "a"
    assert file.with_suffix(".bad").read_bytes() == bad
    assert stored(tmp_path, recipe).counts.loaded == 1


def test_a_file_of_another_grammar_is_not_believed(tmp_path):
    stored(tmp_path, literal("a"))
    (file,) = tmp_path.iterdir()
    cache = GrammarCache(folder=tmp_path)
    other = cache._files.path(literal("b").key, cache._text_only)
    file.rename(other)
    assert stored(tmp_path, literal("b")).counts.loaded == 0
    assert other.with_suffix(".bad").exists()


def test_a_payload_that_xgrammar_cannot_read_is_set_aside(tmp_path, monkeypatch):
    stored(tmp_path, literal("a"))

    def fail(payload, info):
        raise RuntimeError("another version")

    monkeypatch.setattr(xgrammar.CompiledGrammar, "deserialize_json", staticmethod(fail))
    assert stored(tmp_path, literal("a"), limits=NEVER_STORED).counts.loaded == 0
    assert [file.suffix for file in tmp_path.iterdir()] == [".bad"]


def test_another_version_of_xgrammar_has_files_of_its_own(tmp_path, monkeypatch):
    stored(tmp_path, literal("a"))
    monkeypatch.setattr("sglang_toolspec.grammars.grammar_files.version", lambda name: "9.9.9")
    assert stored(tmp_path, literal("a")).counts.loaded == 0
    assert {file.suffix for file in tmp_path.iterdir()} == {".grammar"}


def test_what_compiles_faster_than_it_loads_is_not_stored(tmp_path):
    assert stored(tmp_path, literal("a"), limits=NEVER_STORED).counts.stored == 0
    assert not list(tmp_path.iterdir())


def test_a_grammar_too_large_for_a_file_is_not_stored(tmp_path):
    assert stored(tmp_path, literal("a"), limits=replace(ALWAYS_STORED, file_bytes=100)).counts.stored == 0


def test_the_folder_stays_within_its_bytes(tmp_path):
    size = None
    for text in "abcde":
        limits = replace(ALWAYS_STORED, folder_bytes=3 * size) if size else ALWAYS_STORED
        stored(tmp_path, literal(text), limits=limits)
        size = size or next(tmp_path.iterdir()).stat().st_size
    assert len(list(tmp_path.glob("*.grammar"))) <= 3
    assert stored(tmp_path, literal("e")).counts.loaded == 1


def test_a_folder_that_cannot_be_written_costs_only_the_restart(tmp_path):
    (tmp_path / "file").write_text("")
    cache = stored(tmp_path / "file" / "folder", literal("a"))
    assert forced(cache, literal("a")) == "a"
    assert cache.counts.stored == 0


def test_no_partial_file_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    stored(tmp_path, literal("a"))
    assert not list(tmp_path.glob("*.grammar"))
