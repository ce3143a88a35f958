"""What is compared: an algorithm of SGLang with its settings, as a server's flags."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sglang_toolspec
from sglang_toolspec.bench.draft_models import MODEL_FLAG, draft_flags, model_digest
from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.config import RECIPES, SOURCES, Config

PLAIN = "none"
WITH_DRAFT_MODEL = ("eagle", "eagle3", "standalone")
ALGORITHMS = (PLAIN, "ngram", "toolspec", *WITH_DRAFT_MODEL)
COST = "cost"
"""The width of each step by what it costs."""
WITHOUT = "without-"
"""In the name of a variant, before the source that it lacks."""


@dataclass(frozen=True)
class Variant:
    """``flags`` are those beyond what all servers share; ``draft_model``: folder or hub name."""

    name: str
    algorithm: str
    flags: tuple[str, ...]
    draft_model: str = ""

    @property
    def speculative(self) -> bool:
        return self.algorithm != PLAIN

    @property
    def is_toolspec(self) -> bool:
        return self.algorithm == "toolspec"

    @property
    def learns(self) -> bool:
        """Whether earlier replies help later ones."""
        return self.algorithm in ("ngram", "toolspec")


def variants(
    algorithms: Sequence[str],
    ngram_widths: Sequence[int],
    toolspec_widths: Sequence[str],
    recipes: Sequence[str],
    draft_models: Mapping[str, str],
    ablate: bool = False,
) -> list[Variant]:
    """In the order of ``algorithms``; with ``ablate`` TOOLSPEC also without each of its sources.

    Raises ``UserError`` on what is unknown or missing.
    """
    found: list[Variant] = []
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise UserError(f"unknown algorithm '{algorithm}'; known are {', '.join(ALGORITHMS)}")
        if algorithm == "ngram":
            found += [ngram(width) for width in ngram_widths]
        elif algorithm == "toolspec":
            found += [toolspec(recipe, width) for recipe in recipes for width in toolspec_widths]
            if ablate and recipes and toolspec_widths:
                found += [toolspec(recipes[0], toolspec_widths[0], without) for without in _used(recipes[0])]
        elif algorithm in WITH_DRAFT_MODEL:
            found.append(with_draft_model(algorithm, draft_models))
        else:
            found.append(plain())
    names = [variant.name for variant in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"'{twice}' is asked for twice; give it once")
    if not found:
        raise UserError("there is nothing to measure; give --algorithms, and the widths of each")
    return found


def plain() -> Variant:
    return Variant(PLAIN, PLAIN, ("--speculative-algorithm", PLAIN))


def ngram(width: int) -> Variant:
    """SGLang's own NGRAM with ``width`` draft tokens."""
    flags = ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(width))
    return Variant(f"ngram-{width}", "ngram", flags)


def toolspec(recipe: str = RECIPES[0], width: str = COST, without: str = "") -> Variant:
    """``width``: nodes of every tree, or ``cost``. The paper's trees have 64 nodes unless told otherwise.
    ``without``: the source that is left out."""
    if recipe not in RECIPES:
        raise UserError(f"unknown recipe '{recipe}'; known are {', '.join(RECIPES)}")
    flags = ["--speculative-algorithm", "TOOLSPEC", "--toolspec-recipe", recipe]
    if width != COST:
        if not (width.isdecimal() and int(width)):
            raise UserError(f"--toolspec-widths has '{width}', which is neither a number nor '{COST}'")
        flags += ["--toolspec-fixed-width", "--speculative-num-draft-tokens", width]
    if without:
        flags += ["--toolspec-sources", ",".join(s for s in _used(recipe) if s != without)]
    named = ("" if recipe == RECIPES[0] else recipe, "" if width == COST else width)
    parts = ("toolspec", *named, f"{WITHOUT}{without}" if without else "")
    return Variant("-".join(filter(None, parts)), "toolspec", tuple(flags))


def _used(recipe: str) -> list[str]:
    """Sources of a recipe."""
    used = Config(recipe=recipe).used_sources
    return [source for source in SOURCES if source in used]


def with_draft_model(algorithm: str, draft_models: Mapping[str, str]) -> Variant:
    if algorithm not in draft_models:
        raise UserError(f"{algorithm} needs a draft model; give --draft-model {algorithm}=FOLDER_OR_NAME")
    flags = draft_flags(algorithm, draft_models[algorithm])
    return Variant(algorithm, algorithm, flags, flags[flags.index(MODEL_FLAG) + 1])


def fingerprint(variant: Variant) -> str:
    """Of the flags, the draft model, and our code that decides a variant's replies and their speed.

    SGLang's own algorithms see only our CPU engine and hooks, so a change to a drafter leaves their
    measurements valid.
    """
    package = Path(sglang_toolspec.__file__).parent
    engine = package / "runtime" / "engine"
    tops = [package / "grammars", package / "runtime"] if variant.is_toolspec else [engine / "cpu"]
    digest = hashlib.sha256(repr(variant.flags).encode())
    if variant.draft_model:
        digest.update(model_digest(variant.draft_model).encode())
    for path in sorted({file for top in tops for file in top.rglob("*.py")} | {engine / "hooks.py"}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
