"""The EAGLE head of the examples: its layer is Qwen2's, and its accept length that of naive drafting."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "examples"))  # as `python examples/train_eagle_head.py` has it

import eagle_head  # noqa: E402
import train_eagle_head  # noqa: E402
from eagle_head import EagleHead, Tokens, accepted, save_head  # noqa: E402

CONFIG: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "vocab_size": 12,
    "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3, "attention_dropout": 0.0,
}  # fmt: skip


def random_head(seed: int = 0) -> EagleHead:
    torch.manual_seed(seed)
    head = EagleHead(CONFIG)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return head.eval()


def random_text(length: int) -> tuple[Tokens, Tensor, Tensor]:
    """Embeddings with output rows of every token but one, ids, and hidden states."""
    embedding = torch.randn(CONFIG["vocab_size"], CONFIG["hidden_size"])
    hot = torch.tensor([i for i in range(CONFIG["vocab_size"]) if i != 3])
    ids = torch.randint(CONFIG["vocab_size"], (length,))
    return Tokens(embedding, hot, torch.randn(len(hot), 16)), ids, torch.randn(length, 16)


def test_the_layer_is_that_of_qwen2_without_its_input_norm() -> None:
    from transformers import Qwen2Config
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

    config = Qwen2Config(**CONFIG, attn_implementation="eager")
    theirs = Qwen2DecoderLayer(config, 0).eval()
    theirs.input_layernorm = nn.Identity()
    head = random_head()
    theirs.load_state_dict(head.layers[0].state_dict())
    embedding, hidden, positions = torch.randn(5, 16), torch.randn(5, 16), torch.arange(7, 12)
    states = head.fc(torch.cat((embedding, hidden), dim=-1))[None]
    causal = torch.full((1, 1, 5, 5), float("-inf")).triu(1)
    cos_sin = Qwen2RotaryEmbedding(config)(states, positions[None])

    expected = theirs(states, attention_mask=causal, position_embeddings=cos_sin)
    got, _ = head(embedding, hidden, positions)

    torch.testing.assert_close(got, (expected[0] if isinstance(expected, tuple) else expected).view(5, 16))


def test_reading_in_parts_is_reading_at_once() -> None:
    head, (tokens, ids, features) = random_head(), random_text(9)
    whole, _ = head(tokens.embedding[ids], features, torch.arange(9))
    past, parts = None, []
    for part in (slice(0, 4), slice(4, 5), slice(5, 9)):
        guess, past = head(tokens.embedding[ids[part]], features[part], torch.arange(9)[part], past)
        parts.append(guess)

    torch.testing.assert_close(torch.cat(parts), whole)


def naive_drafts(head: EagleHead, tokens: Tokens, ids: Tensor, features: Tensor, steps: int) -> list[int]:
    """What the head drafts after ``ids``, whose last token has no hidden state yet."""
    ids, features, drafts = ids.tolist(), features[: len(ids) - 1], []
    for _ in range(steps):
        guess, _ = head(tokens.embedding[torch.tensor(ids[1:])], features, torch.arange(len(features)))
        drafts.append(tokens.best(guess))
        ids, features = [*ids, drafts[-1]], torch.cat((features, guess[-1:]))
    return drafts


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", range(5))
@torch.no_grad()
def test_accepted_drafts_are_those_of_naive_drafting(steps: int, seed: int) -> None:
    head, (tokens, ids, features), prompt = random_head(seed), random_text(30), 4
    known, verified = prompt + 1, 0
    while known < len(ids):
        drafts = naive_drafts(head, tokens, ids[:known], features, steps)
        if seed % 2:  # texts that the head can draft
            ids[known : known + 2] = torch.tensor(drafts[:2])[: len(ids) - known]
        right = 0
        while right < steps and known + right < len(ids) and drafts[right] == ids[known + right]:
            right += 1
        known, verified = known + right + 1, verified + 1

    assert accepted(head, tokens, ids, features, prompt, steps) == (len(ids) - prompt - 1, verified)


def test_the_folder_is_in_the_form_that_sglang_loads(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    save_head(tmp_path, random_head(), CONFIG, torch.tensor([1, 5]), {"replies": 2})

    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLMEagle"]
    assert (config["num_hidden_layers"], config["tie_word_embeddings"]) == (1, False)
    assert "layer_types" not in config  # one entry a layer, of the target
    assert torch.load(tmp_path / eagle_head.TOKEN_MAP, weights_only=True).tolist() == [1, 5]
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {"fc.weight", "fc.bias", "layers.0.self_attn.q_proj.bias", "layers.0.mlp.up_proj.weight"} <= names


def test_frequent_tokens_hold_every_token_of_the_replies() -> None:
    replies = [train_eagle_head.Reply([9, 9, 9, 8, 8, 50, 3, 40], 5)]
    assert train_eagle_head.frequent_tokens(replies, 5, 100).tolist() == [3, 8, 9, 40, 50]
    assert train_eagle_head.frequent_tokens(replies, 8, 100).tolist() == [0, 1, 2, 3, 8, 9, 40, 50]


def test_replies_are_read_once_and_what_is_no_reply_is_left_out(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"toolspec_record": 1},
        {"prompt_ids": [1, 2], "output_ids": [3, 4]},
        {"prompt_ids": [1, 2], "output_ids": [3, 4]},
        {"prompt_ids": [1, 2], "output_ids": [3]},
    ]
    path = tmp_path / "recorded.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train_eagle_head.read_replies([path]) == [train_eagle_head.Reply((1, 2, 3, 4), 2)]
    path.write_text(json.dumps(rows[0]))
    with pytest.raises(SystemExit, match="no replies in"):
        train_eagle_head.read_replies([path])


class Quiet:
    """A progress bar that shows nothing."""

    console = Namespace(print=lambda *said: None)

    def add_task(self, *args: Any, **options: Any) -> int:
        return 0

    def advance(self, task: int) -> None: ...


def test_hidden_states_of_replies_that_begin_alike_are_those_of_each_alone(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    target = Qwen2ForCausalLM(Qwen2Config(**CONFIG)).eval()
    replies = [(1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 7, 4), (8, 9)]
    features = train_eagle_head.Features(
        tmp_path, [train_eagle_head.Reply(ids, 1) for ids in replies], CONFIG["hidden_size"], "model"
    )
    features.fill(target, Quiet())

    for i, ids in enumerate(replies):
        alone = target.model(torch.tensor([ids])).last_hidden_state[0]
        torch.testing.assert_close(features[i], alone, atol=2e-3, rtol=0.0)  # they are kept in float16


def trained(folder: Path, epochs: int) -> list[dict[str, Any]]:
    """Epochs of a training on fixed hidden states, as ``training.json`` tells them."""
    torch.manual_seed(0)
    tokens, _, _ = random_text(1)
    replies = [train_eagle_head.Reply(tuple(torch.randint(12, (9,)).tolist()), 4) for _ in range(6)]
    (folder / train_eagle_head.WORK).mkdir(parents=True, exist_ok=True)
    features = train_eagle_head.Features(folder / train_eagle_head.WORK, replies, 16, "model")
    features._array[:] = torch.randn(54, 16).numpy()
    options = Namespace(output=folder, epochs=epochs, rate=1e-2, seed=0, context=3, steps=2)
    train_eagle_head.train(options, CONFIG, [features, features], tokens, Quiet())
    return list(json.loads((folder / "training.json").read_text())["epochs"])


def test_a_training_learns_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = trained(tmp_path, 2)
    both = trained(tmp_path, 12)

    assert both[:2] == first
    assert [told["epoch"] for told in both] == list(range(1, 13))
    assert both[-1]["loss"] < 0.8 * both[0]["loss"]
