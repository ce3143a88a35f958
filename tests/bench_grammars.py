"""How long constraints of real catalogues take to compile with a real vocabulary, and to load.

``TOOLSPEC_DATA=… python -m tests.bench_grammars`` prints a line for each catalogue and the whole
as JSON. Times are wall and processor time of this process; a busy machine shows in the former.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import xgrammar

from sglang_toolspec import model
from sglang_toolspec.grammars.cache import GrammarCache, Limits, Recipe, Vocabulary, constraint_recipe
from sglang_toolspec.grammars.grammar_files import estimated_bytes
from sglang_toolspec.grammars.tools import ToolSet
from tests.jsonschema_suite import data_folder, quiet

PARSER = "qwen25"
MOST_STORED = Limits(read_bytes_per_second=float("inf"))
"""Everything that is small enough is stored, whether that pays or not."""


def timed(work) -> tuple[float, float]:
    """Wall and processor time in milliseconds."""
    wall, used = time.perf_counter(), time.process_time()
    work()
    return round(1000 * (time.perf_counter() - wall), 1), round(1000 * (time.process_time() - used), 1)


def measured(recipe: Recipe, vocabulary: Vocabulary) -> dict:
    """The recipe compiled in a fresh cache, and again by a second one on the same folder."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(read_bytes_per_second=1.0)
        cache = GrammarCache(vocabulary, limits=limits)
        cold, cold_used = timed(lambda: cache.compile_now([recipe]))
        grammar = cache.get(recipe)
        found = {
            "ms": cold,
            "cpu_ms": cold_used,
            "bytes": grammar.memory_size_bytes,
            "file_bytes_estimated": estimated_bytes(grammar),
        }
        if found["file_bytes_estimated"] > MOST_STORED.file_bytes:
            return found
        GrammarCache(vocabulary, Path(folder), MOST_STORED).compile_now([recipe])
        found["file_bytes"] = sum(file.stat().st_size for file in Path(folder).iterdir())
        again = GrammarCache(vocabulary, Path(folder), MOST_STORED)
        load, load_used = timed(lambda: again.compile_now([recipe]))
        if again.counts.loaded:
            found |= {"load_ms": load, "load_cpu_ms": load_used}
        return found


def main() -> None:
    folder, cached = data_folder(), model.cached()
    if folder is None or cached is None:
        sys.exit("set TOOLSPEC_DATA to the folder of mcp_tools.jsonl, and run: sglang-toolspec model fetch")
    vocabulary = read_vocabulary(cached)
    report = {}
    for line in (folder / "mcp_tools.jsonl").read_text().splitlines():
        catalogue = json.loads(line)
        tools = ToolSet.from_openai(catalogue["tools"])
        recipe = constraint_recipe(tools, PARSER, "required", True)
        with quiet():
            report[catalogue["id"]] = {"tools": len(tools.tools), **measured(recipe, vocabulary)}
        print(catalogue["id"], report[catalogue["id"]], file=sys.stderr)
    print(json.dumps({"parser": PARSER, "tokens": vocabulary.info.vocab_size, "catalogues": report}))


def read_vocabulary(folder: Path) -> Vocabulary:
    from transformers import AutoTokenizer

    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Vocabulary.of(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size))


if __name__ == "__main__":
    main()
