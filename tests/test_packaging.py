"""What is declared is what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import sglang_toolspec
from sglang_toolspec import serve
from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars import formats
from sglang_toolspec.plugin import check_sglang_version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_on_disk_is_declared() -> None:
    declared = set(PROJECT["tool"]["setuptools"]["packages"])
    face = ROOT / "sglang_toolspec"
    rooms = [folder for folder in face.iterdir() if folder.is_dir() and not folder.is_symlink()]
    inits = [init for room in rooms for init in room.rglob("__init__.py")]
    found = {"sglang_toolspec", *(".".join(init.parent.relative_to(ROOT).parts) for init in inits)}
    for top in ("grammars", "runtime"):
        for init in (ROOT / top).rglob("__init__.py"):
            found.add(".".join(("sglang_toolspec", *init.parent.relative_to(ROOT).parts)))
    assert declared == found


def test_version_and_sglang_pin_stand_in_one_place_each() -> None:
    assert PROJECT["project"]["version"] == sglang_toolspec.__version__
    assert f"sglang=={sglang_toolspec.SGLANG_VERSION}" in PROJECT["project"]["dependencies"]


def test_the_docs_name_every_parser_whose_format_is_drafted() -> None:
    _, _, rest = (ROOT / "docs" / "serving.md").read_text().partition("## Formats")
    rows = re.findall(r"^\| (`.*?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    names = [name for row in rows[1:] for name in re.findall(r"`(.*?)`", row)]
    assert sorted(names) == sorted(formats._BY_PARSER)


def test_another_sglang_release_is_refused_naming_both() -> None:
    with pytest.raises(UserError, match=r"needs SGLang 0\.5\.23 and found 0\.6\.0"):
        check_sglang_version("0.6.0")
    check_sglang_version("0.5.23+cu130")


@pytest.mark.parametrize(
    ("flags", "absent"),
    [(["--speculative-algorithm", "none"], "none"), (["--speculative-algorithm=none"], "none")],
)
def test_algorithm_none_is_plain_decoding(tmp_path: Path, flags: list[str], absent: str) -> None:
    argv = serve.command_line(str(tmp_path), flags, "gpu")
    assert not any(arg.startswith("--speculative-algorithm") for arg in argv)
    assert absent not in argv


def test_defaults_fill_only_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    argv = serve.command_line(str(tmp_path), ["--dtype=bfloat16", "--port", "1"], "cpu")
    assert argv[argv.index("--tool-call-parser") + 1] == "qwen25"
    assert argv[argv.index("--speculative-algorithm") + 1] == "TOOLSPEC"
    assert argv.count("--dtype=bfloat16") == 1
    assert "--dtype" not in argv


def test_missing_model_folder_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"no model folder at \./nowhere"):
        serve.resolve_model("./nowhere")
