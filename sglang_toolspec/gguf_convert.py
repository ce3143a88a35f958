"""Turn a Qwen2 GGUF file into a folder that ``transformers`` and SGLang load.

Weights are dequantised to bfloat16. The tokenizer is rebuilt by ``transformers``'
own ``Qwen2Tokenizer`` from the vocabulary and merges in the file, so it splits and
merges text exactly as the original does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from safetensors.torch import save_file

CONTROL, USER_DEFINED = 3, 4  # gguf.TokenType

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def convert_qwen2(source: Path, folder: Path, on_progress: Callable[[int, int], None]) -> None:
    """Write ``config.json``, tokenizer files and ``model.safetensors`` into ``folder``."""
    reader = gguf.GGUFReader(source)
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(_weights(reader, on_progress))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tied = "lm_head.weight" not in weights
    (folder / "config.json").write_text(json.dumps(_config(reader, tied), indent=2) + "\n")
    eos = int(_value(reader, "tokenizer.ggml.eos_token_id"))
    pad = int(_value(reader, "tokenizer.ggml.padding_token_id"))
    generation = {"eos_token_id": [eos, pad], "pad_token_id": pad, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    _save_tokenizer(reader, folder)


def hf_name(gguf_name: str) -> str:
    """``blk.3.attn_q.bias`` → ``model.layers.3.self_attn.q_proj.bias``."""
    stem, kind = gguf_name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{_BLOCK[part]}.{kind}"
    return f"{_TOP[stem]}.{kind}"


def _weights(
    reader: gguf.GGUFReader, on_progress: Callable[[int, int], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    for done, tensor in enumerate(reader.tensors, start=1):
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        yield hf_name(tensor.name), torch.tensor(values, dtype=torch.bfloat16)
        on_progress(done, len(reader.tensors))


def _value(reader: gguf.GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def _config(reader: gguf.GGUFReader, tied: bool) -> dict[str, Any]:
    def value(key: str) -> Any:
        return _value(reader, f"qwen2.{key}")

    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": value("attention.head_count"),
        "num_key_value_heads": value("attention.head_count_kv"),
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base"),
        "vocab_size": len(_value(reader, "tokenizer.ggml.tokens")),
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "use_sliding_window": False,
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "dtype": "bfloat16",
        # Without it transformers takes any local tokenizer for a broken Mistral one.
        "transformers_version": transformers.__version__,
    }


def _save_tokenizer(reader: gguf.GGUFReader, folder: Path) -> None:
    from tokenizers import AddedToken
    from transformers import Qwen2Tokenizer

    tokens = _value(reader, "tokenizer.ggml.tokens")
    kinds = _value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in _value(reader, "tokenizer.ggml.merges")]
    plain = {t: i for i, (t, k) in enumerate(zip(tokens, kinds, strict=True)) if k == 1}
    eos = tokens[_value(reader, "tokenizer.ggml.eos_token_id")]
    pad = tokens[_value(reader, "tokenizer.ggml.padding_token_id")]
    # Added tokens get their ids in the order of adding. The constructor adds the
    # end-of-text token, which is the first after the plain ones in Qwen2.
    tokenizer = Qwen2Tokenizer(vocab=plain, merges=merges, eos_token=pad, pad_token=pad, unk_token=pad)
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    wrong = [t.content for t in added if tokens[tokenizer.convert_tokens_to_ids(t.content)] != t.content]
    if wrong:
        raise ValueError(f"added tokens got other ids than in the GGUF file: {wrong[:3]}")
    tokenizer.eos_token, tokenizer.unk_token = eos, None
    tokenizer.chat_template = _value(reader, "tokenizer.chat_template")
    tokenizer.model_max_length = _value(reader, "qwen2.context_length")
    tokenizer.save_pretrained(folder)
