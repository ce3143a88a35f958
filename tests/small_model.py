"""A tiny Qwen2 with random weights and a byte-level tokenizer: breadth without waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCAB_SIZE = 384
WORDS = ('{"name": "', "alpha", "beta", '", "arguments": ', '{"', "get_", "city", '": "', '"}}', "\n")
"""Tokens of their own, so that a reply of a few tokens can hold a call."""

_TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n{%- for tool in tools %}{{ tool | tojson }}\n{%- endfor %}"
    "<|im_end|>\n{%- endif %}{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)


def small_tokenizer() -> Any:
    """A byte-level ``PreTrainedTokenizerFast``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    calls = ("<tool_call>", "</tool_call>")
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in (*calls, *WORDS)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=2048
    )
    wrapped.chat_template = _TEMPLATE
    return wrapped


def build_small_model(folder: Path, seed: int = 7, noise: float = 0.0) -> Path:
    """Write the model into ``folder`` (once) and return it.

    ``noise``: size of random changes to its weights, for a draft model that often agrees with it.
    """
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = small_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.2,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(noise * torch.randn_like(weight))
    model.save_pretrained(folder)
    return folder
