"""Workloads by name: a file, or the sample that comes with this package."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from sglang_toolspec.bench import chat_formats, public_formats
from sglang_toolspec.bench.rows import Row
from sglang_toolspec.errors import UserError

SAMPLE = "sample"
SAMPLE_FILE = Path(__file__).with_name("sample.json")
MAX_BYTES = 1 << 28
"""Of a file that is read."""

Reader = Callable[[Mapping[str, Any], str], Iterator[Row]]
READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    # format: (reader, keys of an item that only this format has)
    "assistant": (chat_formats.assistant, ("tools", "requests")),
    "bfcl": (public_formats.bfcl, ("question",)),
    "toolalpaca": (public_formats.toolalpaca, ("Instructions", "Documentation")),
    "toolbench": (public_formats.toolbench, ("query", "api_list")),
    "apibank": (public_formats.apibank, ("instruction", "input")),
    "chat": (chat_formats.chat, ()),
}


@dataclass(frozen=True)
class Workload:
    """Rows in the order in which they are asked; their ids differ."""

    name: str
    rows: tuple[Row, ...]


def load(spec: str, limit: int | None = None) -> Workload:
    """``sample``, ``FILE`` or ``FORMAT:FILE``; the first ``limit`` rows.

    Raises ``UserError`` on a file that cannot be read, a row of another format, and no rows at all.
    """
    form, path = ("assistant", SAMPLE_FILE) if spec == SAMPLE else _split(spec)
    items = read_items(path)
    if not form and items:
        form = next(name for name, (_, keys) in READERS.items() if all(key in items[0] for key in keys))
    rows = _unique(islice(_rows(path, form, items), limit))
    if not rows:
        raise UserError(f"the workload {spec} has no rows; give a file with at least one request")
    return Workload(path.stem, rows)


def load_all(specs: Iterable[str], limit: int | None = None) -> list[Workload]:
    """As ``load``; names must differ, since figures go by them."""
    found: dict[str, Workload] = {}
    for spec in specs:
        workload = load(spec, limit)
        if workload.name in found:
            raise UserError(f"two workloads are called '{workload.name}'; rename one of the files")
        found[workload.name] = workload
    return list(found.values())


def read_items(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON array or object, or of JSON lines, whatever the file is called."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} has more than {MAX_BYTES >> 20} MiB; give a part of it")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text") from error
    try:
        whole = json.loads(text)
        items = whole if isinstance(whole, list) else [whole]
    except (ValueError, RecursionError):
        items = list(_lines(path, text))
    for item in items:
        if not isinstance(item, dict):
            raise UserError(f"{path} holds {json.dumps(item)[:40]} where a row, an object, was expected")
    return items


def _lines(path: Path, text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: not JSON ({error})") from error


def _split(spec: str) -> tuple[str, Path]:
    form, colon, path = spec.partition(":")
    if colon and form in READERS:
        return form, Path(path)
    if colon and not Path(spec).exists():
        raise UserError(f"unknown format '{form}' in the workload {spec}; known are {', '.join(READERS)}")
    return "", Path(spec)


def _rows(path: Path, form: str, items: Iterable[dict[str, Any]]) -> Iterator[Row]:
    for number, item in enumerate(items):
        try:
            yield from READERS[form][0](item, str(number))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path}, row {number + 1}: not in the format '{form}' ({type(error).__name__}: {error}); "
                f"give the format as in FORMAT:FILE, one of {', '.join(READERS)}"
            ) from error


def _unique(rows: Iterable[Row]) -> tuple[Row, ...]:
    """An id that came before gets a number: logs repeat ids."""
    taken: set[str] = set()
    times: Counter[str] = Counter()
    found = []
    for row in rows:
        name = row.id
        while name in taken:
            times[row.id] += 1
            name = f"{row.id}#{times[row.id] + 1}"
        taken.add(name)
        found.append(row if name == row.id else replace(row, id=name))
    return tuple(found)
