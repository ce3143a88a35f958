"""The official test suite of JSON Schema, run over the masks that xgrammar makes.

``TOOLSPEC_DATA=… python -m tests.jsonschema_suite`` prints the table of docs/json-schema.md.
"""

import json
import os
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import islice, permutations, product
from pathlib import Path

import xgrammar

from sglang_toolspec.grammars.compile import compiled, matcher
from sglang_toolspec.grammars.enforce import unenforceable
from sglang_toolspec.grammars.mask_schema import mask_schema

OUTCOMES = ("agree", "refused", "closed", "named", "silent")
"""What can become of a test: the mask judges as the suite does; xgrammar refuses the schema; the
value is refused only because objects and tuples are closed; or ``unenforceable`` names why not."""

_PLAIN = ("const", "enum", "default", "examples", "required")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MOST = 400


def data_folder() -> Path | None:
    found = os.environ.get("TOOLSPEC_DATA")
    return Path(found) if found else None


def groups(folder: Path) -> list[dict]:
    lines = (folder / "jsonschema_testsuite.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def mask(schema) -> xgrammar.CompiledGrammar | None:
    """The grammar of a constraint for ``schema``, without a vocabulary; ``None`` if it is refused."""
    try:
        return compiled(xgrammar.Grammar.from_json_schema(json.dumps(mask_schema(schema))))
    except RuntimeError:
        return None


def accepts(grammar: xgrammar.CompiledGrammar, value) -> bool:
    """Whether some JSON text of ``value`` is in ``grammar``, with the keys in any order."""
    return any(_is_in(grammar, text) for text in texts(value))


def _is_in(grammar: xgrammar.CompiledGrammar, text: str) -> bool:
    walk = matcher(grammar)
    return walk.accept_string(text) and walk.is_completed()


def texts(value):
    """The ways to write ``value`` as compact JSON, at most ``_MOST``."""
    if isinstance(value, list):
        for items in islice(product(*(list(texts(item)) for item in value)), _MOST):
            yield f"[{','.join(items)}]"
    elif isinstance(value, dict):
        written = {key: list(islice(texts(item), 60)) for key, item in value.items()}
        for order in islice(permutations(value), _MOST):
            for items in islice(product(*(written[key] for key in order)), _MOST):
                pairs = (f"{_dumps(key)}:{item}" for key, item in zip(order, items, strict=True))
                yield f"{{{','.join(pairs)}}}"
    else:
        yield _dumps(value)
        if isinstance(value, float):
            yield f"{value:.17g}"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
            yield _dumps(float(value))


def _dumps(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def opened(schema):
    """``schema`` with everything allowed that it does not speak of, as JSON Schema means it."""
    if isinstance(schema, list):
        return [opened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            kept[key] = {name: opened(item) for name, item in value.items()}
        else:
            kept[key] = value if key in _PLAIN else opened(value)
    types = kept.get("type") if isinstance(kept.get("type"), list) else [kept.get("type")]
    if ("properties" in kept or "patternProperties" in kept or "object" in types) and not any(
        key in kept for key in ("additionalProperties", "unevaluatedProperties")
    ):
        kept["additionalProperties"] = True
    if "prefixItems" in kept and not any(key in kept for key in ("items", "unevaluatedItems")):
        kept["items"] = True
    return kept


def outcomes(schema, tests):
    """Pairs of a test (``data``, ``valid``) and its outcome."""
    grammar = mask(schema)
    if grammar is None:
        yield from ((test, "refused") for test in tests)
        return
    found = unenforceable(schema)
    lets_through = any(item.lets_through for item in found)
    free = None
    for test in tests:
        accepted = accepts(grammar, test["data"])
        if accepted == test["valid"]:
            yield test, "agree"
        elif accepted:
            yield test, "named" if lets_through else "silent"
        else:
            free = free or mask(opened(schema))
            closed = free is not None and accepts(free, test["data"])
            yield test, "closed" if closed else "named" if found else "silent"


def table(folder: Path) -> dict[str, Counter]:
    """Counts of outcomes by keyword, in the order of the alphabet."""
    counts: dict[str, Counter] = {}
    with quiet():
        for group in groups(folder):
            of_keyword = counts.setdefault(group["keyword"], Counter())
            of_keyword.update(outcome for _, outcome in outcomes(group["schema"], group["tests"]))
    return dict(sorted(counts.items(), key=lambda item: item[0].lower()))


@contextmanager
def quiet():
    """Without xgrammar's warnings, which go to the process's stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def markdown(counts: dict[str, Counter]) -> str:
    rows = [("keyword", *OUTCOMES), *[("---", *["--:"] * len(OUTCOMES))]]
    rows += [(f"`{keyword}`", *(str(found[o] or "") for o in OUTCOMES)) for keyword, found in counts.items()]
    total = sum(counts.values(), Counter())
    rows.append(("all", *(str(total[o]) for o in OUTCOMES)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    folder = data_folder()
    if folder is None:
        sys.exit("TOOLSPEC_DATA is not set; set it to the folder of jsonschema_testsuite.jsonl")
    print(markdown(table(folder)))
