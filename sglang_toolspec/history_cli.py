"""``sglang-toolspec history``: look at what a server has remembered, and change it."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglang_toolspec.errors import UserError

if TYPE_CHECKING:
    from sglang_toolspec.runtime.history.entry import Call, Entry
    from sglang_toolspec.runtime.history.history import History
    from sglang_toolspec.runtime.history.manifest import Fingerprint, Manifest

app = typer.Typer(help="Calls that servers have remembered in a folder.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a history.")]
Lines = Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One entry a line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
MAX_SHOWN = 40
"""Tenants listed in a terminal."""
FLUSHED = 1000
"""Entries added between two waits for the disk."""
MAX_WAIT = 120.0
"""Seconds to wait for a disk."""


@app.command()
def inspect(folder: Folder, as_json: AsJson = False) -> None:
    """Show whose history it is and what it holds, by tenant; also while a server uses it."""
    from sglang_toolspec.runtime.history.opening import read_entries

    manifest, stored = read_entries(folder)
    tenants = _by_tenant(item.entry for item in stored)
    size = sum(item.size for item in stored)
    if as_json:
        found = {**manifest.fingerprint.model_dump(), "capacity": manifest.capacity, "bytes": size}
        print(json.dumps({**found, "entries": len(stored), "tenants": tenants}))
    else:
        _print_inspection(folder, manifest, size, tenants)


@app.command("export")
def export_entries(folder: Folder, file: Lines) -> None:
    """Write all entries to a file; also while a server uses the history."""
    from sglang_toolspec.runtime.history.exchange import export_lines
    from sglang_toolspec.runtime.history.opening import read_entries

    manifest, stored = read_entries(folder)
    try:
        with file.open("w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in export_lines(manifest.fingerprint, stored))
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    print(f"{len(stored)} entries written to {file}")


@app.command("import")
def import_entries(folder: Folder, file: Lines, as_json: AsJson = False) -> None:
    """Add the entries of an exported file to a history, which is made where there is none."""
    from sglang_toolspec.runtime.history.exchange import read_calls, read_header

    try:
        lines = file.open(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    with lines:
        fingerprint = read_header(lines, str(file))
        _add(folder, [(str(file), fingerprint, read_calls(lines, str(file), fingerprint.dimension))], as_json)


@app.command()
def merge(
    folder: Folder,
    others: Annotated[list[Path], typer.Argument(metavar="OTHER...", help="Folders to add entries from.")],
    as_json: AsJson = False,
) -> None:
    """Add the entries of other histories to a history, which is made where there is none."""
    from sglang_toolspec.runtime.history.exchange import calls_of
    from sglang_toolspec.runtime.history.opening import read_entries

    sources = []
    for other in others:
        if other.resolve() == folder.resolve():
            raise UserError(f"{other} cannot be merged with itself")
        manifest, stored = read_entries(other)
        sources.append((str(other), manifest.fingerprint, calls_of(stored)))
    _add(folder, sources, as_json)


@app.command()
def purge(
    folder: Folder,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's entries.")] = None,
    older_than: Annotated[str | None, typer.Option(help="Only older ones: 12h, 30d, 8w.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All entries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove entries for good: no file of the history holds them afterwards."""
    from sglang_toolspec.runtime.history.opening import open_files
    from sglang_toolspec.runtime.history.records import Unusable

    if everything == (tenant is not None or older_than is not None):
        raise UserError("say what to purge: --tenant, --older-than or both, or --all")
    until = None if older_than is None else time.time() - _seconds(older_than)

    def keep(entry: Entry) -> bool:
        other = tenant is not None and entry.tenant != tenant
        return other or (until is not None and entry.created >= until)

    files, stored = open_files(folder)
    with closing(files):
        try:
            kept = files.compact(keep)
        except (OSError, Unusable) as error:
            raise UserError(f"the history in {folder} cannot be rewritten: {error}") from error
    _print_result({"purged": len(stored) - kept, "entries": kept}, as_json)


def _add(folder: Path, sources: Iterable[tuple[str, Fingerprint, Iterable[Call]]], as_json: bool) -> None:
    """Add calls to the history in ``folder``, made for the first source where there is none.

    A source is its name, whose it is, and its calls.
    """
    from sglang_toolspec.runtime.history.manifest import NAME, read_manifest
    from sglang_toolspec.runtime.history.opening import open_existing, open_history

    read = 0
    with ExitStack() as undo:
        history = None
        for name, fingerprint, calls in sources:
            if history is None:
                is_there = (folder / NAME).is_file()
                history = open_existing(folder) if is_there else open_history(folder, fingerprint)
                undo.callback(history.close)
            if difference := read_manifest(folder).fingerprint.difference(fingerprint):
                raise UserError(f"{name} does not fit {folder}: it is for {difference}")
            for call in calls:
                if not history.insert(call):
                    raise UserError(f"{name} does not fit {folder}: its vectors have another length")
                read += 1
                if read % FLUSHED == 0:
                    _flush(history, folder)
        assert history is not None
        _flush(history, folder)
        stats = history.stats()
    _print_result({"read": read, **{key: stats[key] for key in ("added", "renewed", "entries")}}, as_json)


def _flush(history: History, folder: Path) -> None:
    if not history.flush(MAX_WAIT):
        raise UserError(f"not everything could be written to {folder}; is its disk full?")


def _print_result(counts: dict[str, int], as_json: bool) -> None:
    print(json.dumps(counts) if as_json else ", ".join(f"{n} {name}" for name, n in counts.items()))


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    if match is None:
        raise UserError(f"--older-than {text!r} must be a whole number and a unit (s, m, h, d, w), as in 30d")
    return int(match[1]) * _UNITS[match[2]]


def _by_tenant(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """What each tenant has, the one with most entries first."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.tenant, []).append(entry)
    return [
        {
            "tenant": tenant,
            "entries": len(group),
            "tokens": sum(len(entry.tokens) for entry in group),
            "drafted": sum(entry.drafted for entry in group),
            "used": sum(entry.used for entry in group),
            "oldest": min(entry.created for entry in group),
            "newest": max(entry.created for entry in group),
            "tools": dict(Counter(name for entry in group for name in entry.tools).most_common(20)),
        }
        for tenant, group in sorted(groups.items(), key=lambda pair: -len(pair[1]))
    ]


def _print_inspection(folder: Path, manifest: Manifest, size: int, tenants: list[dict[str, Any]]) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sglang_toolspec.explain_view import forget_unwritable, printable

    console = Console(file=sys.stdout, highlight=False)
    forget_unwritable(console)
    mark = manifest.fingerprint
    count = sum(tenant["entries"] for tenant in tenants)
    summary = f"{folder}: {count} of at most {manifest.capacity} entries, {size / 1e6:.1f} MB"
    console.print(Text(summary), soft_wrap=True)
    whose = f"model {mark.model}, tokenizer {mark.tokenizer[:16]}, {_dim(mark)}"
    console.print(Text(printable(whose)), soft_wrap=True)
    if not tenants:
        return
    table = Table("tenant", "entries", "tokens", "drafts", "accepted", "newest", "tools", box=None)
    for column in table.columns[1:5]:
        column.justify = "right"
    for tenant in tenants[:MAX_SHOWN]:
        counts = (str(tenant[key]) for key in ("entries", "tokens", "drafted", "used"))
        newest = time.strftime("%Y-%m-%d %H:%M", time.localtime(tenant["newest"]))
        tools = ", ".join(list(tenant["tools"])[:3])
        table.add_row(Text(printable(tenant["tenant"])), *counts, newest, Text(printable(tools)))
    console.print(table)
    if len(tenants) > MAX_SHOWN:
        console.print(f"and {len(tenants) - MAX_SHOWN} more tenants")


def _dim(mark: Fingerprint) -> str:
    return "no vector yet" if mark.dimension is None else f"vectors of {mark.dimension} numbers"
