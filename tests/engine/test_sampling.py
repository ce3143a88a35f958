"""Sampling through the engine: TOOLSPEC draws from the distribution of plain decoding."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from scipy.stats import chi2_contingency

from tests.engine.client import Client, at_once
from tests.engine.prompts import TOOLS
from tests.small_model import VOCAB_SIZE, WORDS

pytestmark = pytest.mark.engine

DRAWS = 2000
PER_REQUEST = 50


def _draws(client: Client, prompt: str, sampling: dict[str, Any], length: int) -> Counter[tuple[int, ...]]:
    """``DRAWS`` replies of ``length`` tokens, as a histogram."""
    params = {
        "temperature": 1.0,
        "max_new_tokens": length,
        "ignore_eos": True,
        "n": PER_REQUEST,
        "custom_params": {"toolspec": {"tools": TOOLS, "tool_choice": "auto"}},
        **sampling,
    }

    def ask(_: int) -> list[tuple[int, ...]]:
        reply = client.post("/generate", {"text": prompt, "sampling_params": params})
        assert reply.status_code == 200, reply.text
        return [tuple(r["output_ids"]) for r in reply.json()]

    return Counter(ids for batch in at_once(ask, range(DRAWS // PER_REQUEST), 4) for ids in batch)


def _assert_same_distribution(plain: Counter[tuple[int, ...]], ours: Counter[tuple[int, ...]]) -> None:
    """Chi-square test of homogeneity; outcomes seen fewer than 20 times are pooled."""
    frequent = [k for k in plain | ours if plain[k] + ours[k] >= 20]
    assert len(frequent) >= 5, "the test must have several outcomes to tell apart"
    table = [[c[k] for k in frequent] for c in (plain, ours)]
    for row, counts in zip(table, (plain, ours), strict=True):
        row.append(sum(counts.values()) - sum(row))
    columns = [col for col in zip(*table, strict=True) if sum(col) > 0]
    p = chi2_contingency(list(zip(*columns, strict=True))).pvalue
    assert p > 1e-3, f"distributions differ, p = {p:.2e}"


def test_unconstrained_draws_match(small_plain: Client, small_toolspec: Client, small_model: Any) -> None:
    """The bias keeps to tokens that build calls, so drafts are proposed, accepted and refused."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(small_model))
    ids = [tokenizer.convert_tokens_to_ids(w) for w in WORDS[:6]]
    assert all(0 <= i < VOCAB_SIZE for i in ids)
    sampling = {"logit_bias": {str(i): 30.0 for i in ids}, "top_p": 0.95}
    before = small_toolspec.stats()
    ours = _draws(small_toolspec, "Call:", sampling, 3)
    after = small_toolspec.stats()
    assert after["proposed_drafts"] > before["proposed_drafts"]
    _assert_same_distribution(_draws(small_plain, "Call:", sampling, 3), ours)


def test_draws_under_a_grammar_match(small_plain: Client, small_toolspec: Client) -> None:
    """A mask that leaves calls of three tools: the drafts are branches of the sampled choice."""
    sampling = {
        "regex": r'\{"name": "(alpha|beta|get_city)", "arguments": '
        r'\{"(city|loud|times)": (true|false|1|2)\}\}',
        "top_k": 8,
        "temperature": 1.5,
    }
    length = 8
    ours = _draws(small_toolspec, "Call:", sampling, length)
    _assert_same_distribution(_draws(small_plain, "Call:", sampling, length), ours)
