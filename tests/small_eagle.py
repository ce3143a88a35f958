"""Draft models for the tiny model of ``small_model.py``, in the form that SGLang loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sglang_toolspec.bench.draft_models import TOKEN_MAP

HEAD = {"eagle": "Qwen2ForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3"}


def build_small_head(folder: Path, target: Path, algorithm: str, noise: float = 0.02, seed: int = 11) -> Path:
    """Write a head for ``eagle`` or ``eagle3`` into ``folder`` (once) and return it.

    Its one layer has random weights of size ``noise``, around a path that carries the target's hidden
    state on to the output: it guesses that a token repeats, so some of its drafts are accepted. It
    knows every other token only, as reduced vocabularies do.
    """
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from safetensors.torch import load_file, save_file

    config = json.loads((target / "config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    config.pop("layer_types", None)  # one entry a layer
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = hidden // heads
    three = algorithm == "eagle3"
    generator = torch.Generator().manual_seed(seed)
    seen = 2 * hidden if three else hidden
    shapes: dict[str, tuple[int, ...]] = {
        "layers.0.self_attn.q_proj.weight": (heads * head_dim, seen),
        "layers.0.self_attn.k_proj.weight": (kv_heads * head_dim, seen),
        "layers.0.self_attn.v_proj.weight": (kv_heads * head_dim, seen),
        "layers.0.self_attn.o_proj.weight": (hidden, heads * head_dim),
        "layers.0.mlp.gate_proj.weight": (inner, hidden),
        "layers.0.mlp.up_proj.weight": (inner, hidden),
        "layers.0.mlp.down_proj.weight": (hidden, inner),
        "fc.weight": (hidden, 2 * hidden),
    }
    weights = {name: noise * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    weights["fc.weight"][:, hidden:] += torch.eye(hidden)
    weights["layers.0.post_attention_layernorm.weight"] = torch.ones(hidden)
    changes: dict[str, Any] = {"architectures": [HEAD[algorithm]], "num_hidden_layers": 1}
    known = torch.arange(0, config["vocab_size"], 2)
    folder.mkdir(parents=True, exist_ok=True)
    if three:
        weights["layers.0.input_layernorm.weight"] = torch.ones(hidden)
        weights["layers.0.hidden_norm.weight"] = torch.ones(hidden)
        weights["norm.weight"] = torch.ones(hidden)
        weights["lm_head.weight"] = load_file(target / "model.safetensors")["lm_head.weight"][known].clone()
        weights["d2t"] = known - torch.arange(len(known))
        layers = {"eagle_aux_hidden_state_layer_ids": [-1, 0], "use_aux_hidden_state": True}
        changes |= {"model_type": "llama", "draft_vocab_size": len(known), "eagle_config": layers}
    else:
        torch.save(known, folder / TOKEN_MAP)
        weights["fc.bias"] = torch.zeros(hidden)
        for name in ("q", "k", "v"):
            width = weights[f"layers.0.self_attn.{name}_proj.weight"].shape[0]
            weights[f"layers.0.self_attn.{name}_proj.bias"] = torch.zeros(width)
    (folder / "config.json").write_text(json.dumps(config | changes, indent=2))
    save_file(weights, folder / "model.safetensors")
    return folder
