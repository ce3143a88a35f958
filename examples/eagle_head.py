"""An EAGLE head for Qwen2 models: the network, how it drafts, and the form in which SGLang loads it.

Used by train_eagle_head.py. At position t the head reads the embedding of token t+1 and the target's
hidden state of position t, and guesses the hidden state of position t+1. The target's own output layer
makes tokens of it, cut down to the rows of frequent tokens: that layer is most of a draft's cost.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

ARCHITECTURE = "Qwen2ForCausalLMEagle"
TOKEN_MAP = "hot_token_id.pt"


@dataclass(frozen=True)
class Shape:
    """What a Qwen2 configuration says about one layer."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Shape":
        heads = config["num_attention_heads"]
        rope = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        return cls(
            config["hidden_size"],
            config["intermediate_size"],
            heads,
            config["num_key_value_heads"],
            config.get("head_dim") or config["hidden_size"] // heads,
            rope,
            config["rms_norm_eps"],
        )


@dataclass
class Past:
    """Keys and values of the positions read so far, ``[kv_heads, positions, head_dim]``."""

    key: Tensor
    value: Tensor


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(self, x: Tensor, positions: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        split = (len(x), -1, self.shape.head_dim)
        projections = self.q_proj, self.k_proj, self.v_proj
        query, key, value = (project(x).view(split).transpose(0, 1) for project in projections)
        query, key = (rotated(part, positions, self.shape.rope_theta) for part in (query, key))
        if past is not None:
            key, value = torch.cat((past.key, key), dim=1), torch.cat((past.value, value), dim=1)
        seen = torch.ones(len(x), key.shape[1], dtype=torch.bool).tril(key.shape[1] - len(x))
        out = functional.scaled_dot_product_attention(
            query[None], key[None], value[None], attn_mask=seen, enable_gqa=True
        )
        return self.o_proj(out[0].transpose(0, 1).reshape(len(x), -1)), Past(key, value)


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary position embedding (halves, as Qwen2 has it) of ``[heads, positions, head_dim]``."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * theta ** (-torch.arange(half).float() / half)
    cos, sin = angles.cos(), angles.sin()
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A Qwen2 layer without the norm of its input."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, positions: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        attended, past = self.self_attn(x, positions, past)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), past


class EagleHead(nn.Module):
    """Begins as the identity of the hidden state, with a layer whose outputs are small."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        shape = Shape.of(config)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape)])
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                outputs = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.002 if outputs else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        with torch.no_grad():
            self.fc.weight[:, shape.hidden :] += torch.eye(shape.hidden)

    def forward(
        self, embedding: Tensor, hidden: Tensor, positions: Tensor, past: Past | None = None
    ) -> tuple[Tensor, Past]:
        """``embedding`` of the tokens after ``positions``, ``hidden`` states at them, all ``[n, hidden]``.

        Returns the guessed hidden states of the positions after them.
        """
        return self.layers[0](self.fc(torch.cat((embedding, hidden), dim=-1)), positions, past)


@dataclass(frozen=True)
class Tokens:
    """The target's embeddings ``[vocab, hidden]``, and the output rows of ``hot`` tokens."""

    embedding: Tensor
    hot: Tensor
    rows: Tensor

    def logits(self, hidden: Tensor) -> Tensor:
        """``[n, len(hot)]``."""
        return hidden @ self.rows.T

    def best(self, hidden: Tensor) -> int:
        return int(self.hot[self.logits(hidden[-1:]).argmax()])


@torch.no_grad()
def accepted(
    head: EagleHead, tokens: Tokens, ids: Tensor, features: Tensor, prompt: int, steps: int
) -> tuple[int, int]:
    """Greedy chains of ``steps`` drafts against a known text, as SGLang runs them with topk 1.

    ``ids`` ``[n]`` and the target's hidden states ``features`` ``[n, hidden]`` of prompt and reply;
    the reply begins at ``prompt``. Returns its tokens after the first, and the verify steps they take.
    """
    known, past, read, verified = prompt + 1, None, 0, 0
    while known < len(ids):
        # Everything up to the newest token but one has a hidden state of the target.
        span = slice(read, known - 1)
        guess, past = head(
            tokens.embedding[ids[read + 1 : known]], features[span], torch.arange(read, known - 1), past
        )
        read, drafts_past, right = known - 1, past, 0
        for step in range(steps):
            draft = tokens.best(guess)
            if known + right >= len(ids) or draft != ids[known + right]:
                break
            right += 1
            if step + 1 < steps:
                guess, drafts_past = head(
                    tokens.embedding[draft][None], guess[-1:], torch.tensor([known - 1 + step]), drafts_past
                )
        known, verified = known + right + 1, verified + 1
    return len(ids) - prompt - 1, verified


def save_head(
    folder: Path, head: EagleHead, config: dict[str, Any], hot: Tensor, told: dict[str, Any]
) -> None:
    """Write what SGLang loads, and ``told`` about the training as ``training.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"architectures": [ARCHITECTURE], "num_hidden_layers": 1, "tie_word_embeddings": False}
    kept = {key: value for key, value in config.items() if key != "layer_types"}  # one entry a layer
    (folder / "config.json").write_text(json.dumps(kept | changes, indent=2) + "\n")
    (folder / "training.json").write_text(json.dumps(told, indent=2) + "\n")
    torch.save(hot, folder / TOKEN_MAP)  # the one form that --speculative-token-map takes
    weights = {name: part.detach().clone() for name, part in head.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
