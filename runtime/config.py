"""Settings of the plugin, from ``TOOLSPEC_*`` environment variables.

They are environment variables because SGLang's command line is its own, and because
every spawned process inherits them. ``sglang-toolspec serve`` sets them from flags.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.retrieval import PAPER, Retrieval

PREFIX = "TOOLSPEC_"
SOURCES = ("schema", "copy", "value", "suffix", "history", "recycling")
"""Drafters and guessers, for ablations: ``TOOLSPEC_SOURCES=schema,copy``."""
RECIPES = ("full", "paper")
_NOT_IN_PAPER = {"copy", "value", "suffix"}
_NOT_SETTINGS = {"TOOLSPEC_CACHE", "TOOLSPEC_DATA"}


@dataclass(frozen=True)
class Config:
    """``overlap``: keep SGLang's overlap scheduling on a GPU (results reach the drafters one
    step late). ``fixed_width``: verify ``draft_token_num`` nodes in every step on a CPU too,
    instead of as many as the trees have. ``prompt_tools``: draft for tools that
    only the text of the prompt lists. ``sources``: which drafters are used. ``recipe``: ``full``
    merges all sources into one tree, ``paper`` is Algorithm 1 of ToolSpec. ``record``: the file to which
    finished requests are appended, prompts and all. ``log``: one line for each finished request, about
    what became of its drafts. ``history``: the folder in which the history of calls is kept.
    ``retrieval``: what is not as the recipe has it (``Retrieval.changed``)."""

    overlap: bool = False
    fixed_width: bool = False
    prompt_tools: bool = True
    sources: frozenset[str] = frozenset(SOURCES)
    recipe: str = RECIPES[0]
    record: Path | None = None
    log: bool = False
    history: Path | None = None
    retrieval: str = ""

    @property
    def used_sources(self) -> frozenset[str]:
        """Those of ``sources`` that the recipe has."""
        return self.sources - _NOT_IN_PAPER if self.recipe == "paper" else self.sources

    @property
    def used_retrieval(self) -> Retrieval:
        return (PAPER if self.recipe == "paper" else Retrieval()).changed(self.retrieval, "retrieval")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """Raises ``UserError`` on an unknown ``TOOLSPEC_*`` variable or a bad value."""
        known = {PREFIX + f.name.upper(): f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for variable, value in settings_in(environ).items():
            if variable not in known:
                raise UserError(f"unknown setting {variable}; known are {', '.join(sorted(known))}")
            read = _READERS.get(known[variable], _switch)
            values[known[variable]] = read(variable, value)
        return cls(**values)


def settings_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables that are the plugin's."""
    return {v: value for v, value in environ.items() if v.startswith(PREFIX) and v not in _NOT_SETTINGS}


def named_sources(variable: str, value: str) -> frozenset[str]:
    """Of a comma-separated list; ``variable`` is what a ``UserError`` names."""
    names = {name.strip() for name in value.split(",") if name.strip()}
    if unknown := sorted(names - set(SOURCES)):
        raise UserError(f"{variable} has the unknown source '{unknown[0]}'; known are {', '.join(SOURCES)}")
    return frozenset(names)


def _switch(variable: str, value: str) -> bool:
    if value.lower() in ("1", "true", "on", "yes"):
        return True
    if value.lower() in ("0", "false", "off", "no", ""):
        return False
    raise UserError(f"{variable}={value!r} is neither on nor off; use 1 or 0")


def named_recipe(variable: str, value: str) -> str:
    if value not in RECIPES:
        raise UserError(f"{variable}={value!r} is no recipe; known are {', '.join(RECIPES)}")
    return value


def named_retrieval(variable: str, value: str) -> str:
    Retrieval().changed(value, variable)
    return value


def _file(variable: str, value: str) -> Path | None:
    return Path(value) if value else None


_READERS: dict[str, Callable[[str, str], Any]] = {
    "sources": named_sources,
    "recipe": named_recipe,
    "record": _file,
    "history": _file,
    "retrieval": named_retrieval,
}
