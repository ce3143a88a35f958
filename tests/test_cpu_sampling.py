"""``sample_tree`` commits samples of the target itself, whatever was drafted.

The target is a tiny language model over ``VOCAB`` tokens: the logits after a path are a
fixed function of the path, so every distribution can be computed independently.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sglang.srt.layers import sampler as sampler_module
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import TOP_K_ALL
from torch import Tensor

from sglang_toolspec.runtime.engine.cpu import sampling
from sglang_toolspec.runtime.engine.cpu.sampling import apply_path_penalties, sample_tree
from tests.random_trees import links_of, mask_of, path_of, random_parents

VOCAB = 7
DRAWS = 20_000
PROMPT = 10
ROOT = 6

Path = tuple[int, ...]


@pytest.fixture(scope="module")
def sampler() -> Iterator[Any]:
    """SGLang's sampler; only the process groups and settings that it looks up are replaced."""
    settings = SimpleNamespace(
        deterministic=SimpleNamespace(rl_on_policy_target=None, enable_deterministic_inference=False),
        kernel=SimpleNamespace(sampling_backend="pytorch"),
        features=SimpleNamespace(sampling_mask_max_tokens=None),
    )
    one_rank = SimpleNamespace(tp_group=SimpleNamespace(device_group=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "get_exec", lambda: settings)
        patch.setattr(sampler_module, "get_parallel", lambda: one_rank)
        patch.setattr(sampler_module, "is_dp_attention_enabled", lambda: False)
        yield sampler_module.Sampler()


def target_logits(path: Path) -> np.ndarray:
    return np.random.default_rng([*path, 99]).normal(scale=1.2, size=VOCAB)


def allowed_after(path: Path) -> np.ndarray:
    """A grammar: four of the seven tokens are allowed, which ones depends on the path."""
    return (np.arange(VOCAB) + sum(path) + len(path)) % VOCAB < 4


@dataclass(frozen=True)
class Settings:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = TOP_K_ALL
    min_p: float = 0.0
    bias: dict[int, float] = field(default_factory=dict)

    def law(self, path: Path, grammar: bool = False) -> np.ndarray:
        """The target's distribution after ``path``, as plain decoding samples it."""
        logits = target_logits(path)
        for token, value in self.bias.items():
            logits[token] += value
        if grammar:
            logits[~allowed_after(path)] = -np.inf
        p = np.exp((logits - logits.max()) / self.temperature)
        p /= p.sum()
        kept, mass = np.zeros(VOCAB), 0.0
        for rank, token in enumerate(np.argsort(-p)):
            if rank < self.top_k and mass <= self.top_p and p[token] >= self.min_p * p.max():
                kept[token] = p[token]
            mass += p[token]
        return kept / kept.sum()


@dataclass(frozen=True)
class Draft:
    tokens: list[int]
    parents: list[int]

    def path(self, node: int) -> Path:
        return tuple(self.tokens[i] for i in path_of(self.parents, node)[1:])


def chain(choose: Any) -> Draft:
    """Three drafts in a row; ``choose`` picks each token from the target's logits."""
    path: list[int] = []
    for _ in range(3):
        path.append(int(choose(target_logits(tuple(path)))))
    return Draft([ROOT, *path], [-1, 0, 1, 2])


DRAFTS = {
    "perfect chain": chain(np.argmax),
    "all wrong": chain(np.argmin),
    "no draft": Draft([ROOT], [-1]),
    "tree with siblings": Draft([ROOT, 3, 0, 5, 2, 1, 4, 0], [-1, 0, 0, 0, 1, 1, 2, 6]),
    "every first token": Draft([ROOT, *range(VOCAB)], [-1] + [0] * VOCAB),
}

SETTINGS = {
    "plain": Settings(),
    "temperature": Settings(temperature=0.6),
    "top-p": Settings(top_p=0.7),
    "top-k": Settings(top_k=3),
    "min-p": Settings(min_p=0.25),
    "logit bias": Settings(bias={1: 2.0, 4: -3.0}),
    "everything": Settings(temperature=1.3, top_p=0.9, top_k=5, min_p=0.1, bias={2: 1.0}),
}


class GrammarMask:
    def __init__(self, draft: Draft):
        nodes = range(len(draft.tokens))
        self.allowed = torch.tensor(np.stack([allowed_after(draft.path(i)) for i in nodes]))

    def apply(self, logits: Tensor) -> None:
        repeated = self.allowed.repeat(len(logits) // len(self.allowed), 1)
        logits.masked_fill_(~repeated, float("-inf"))


def request(**params: Any) -> SimpleNamespace:
    defaults = {
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0,
        "min_new_tokens": 0, "stop_token_ids": None,
    }  # fmt: skip
    return SimpleNamespace(
        sampling_params=SimpleNamespace(**(defaults | params)),
        output_ids=[ROOT],
        eos_token_ids={5},
        tokenizer=SimpleNamespace(eos_token_id=4, additional_stop_token_ids=None),
    )


def sampling_info(settings: list[Settings]) -> SamplingBatchInfo:
    bias = torch.zeros(len(settings), VOCAB)
    for row, s in zip(bias, settings, strict=True):
        for token, value in s.bias.items():
            row[token] = value
    return SamplingBatchInfo(
        temperatures=torch.tensor([[s.temperature] for s in settings]),
        top_ps=torch.tensor([s.top_p for s in settings]),
        top_ks=torch.tensor([s.top_k for s in settings], dtype=torch.int32),
        min_ps=torch.tensor([s.min_p for s in settings]),
        is_all_greedy=all(s.top_k == 1 for s in settings),
        is_any_greedy=any(s.top_k == 1 for s in settings),
        need_top_p_sampling=any(s.top_p < 1 for s in settings),
        need_top_k_sampling=any(s.top_k != TOP_K_ALL for s in settings),
        need_min_p_sampling=any(s.min_p > 0 for s in settings),
        vocab_size=VOCAB,
        device="cpu",
        logit_bias=bias if any(s.bias for s in settings) else None,
    )


def commit(
    sampler: Any,
    draft: Draft,
    reqs: list[Any],
    info: SamplingBatchInfo,
    grammar: bool = False,
) -> list[Path]:
    """The tokens that one verify step of ``draft`` commits to each request."""
    bs, n = len(reqs), len(draft.tokens)
    child, sibling = links_of(draft.parents, n)
    depths = [len(draft.path(i)) for i in range(n)]
    verify_input = SimpleNamespace(
        draft_token_num=n,
        draft_token=torch.tensor(draft.tokens).repeat(bs),
        custom_mask=mask_of(draft.parents, n).flatten().repeat(bs),
        positions=(torch.tensor(depths) + PROMPT).repeat(bs),
        retrieve_index=torch.arange(bs * n).view(bs, n),
        retrieve_next_token=torch.tensor(child).repeat(bs, 1),
        retrieve_next_sibling=torch.tensor(sibling).repeat(bs, 1),
        tree_topk=-1,
        max_tree_depth=max(depths) + 1,
    )
    nodes = np.stack([target_logits(draft.path(i)) for i in range(n)])
    logits = torch.tensor(nodes, dtype=torch.float32).repeat(bs, 1)
    batch = SimpleNamespace(reqs=reqs, sampling_info=info)
    mask = GrammarMask(draft) if grammar else None

    predict, accept_lens, accept_index = sample_tree(sampler, verify_input, batch, logits, mask)

    committed = []
    for row, length in zip(accept_index.tolist(), accept_lens.tolist(), strict=True):
        assert row[length:] == [-1] * (max(depths) + 1 - length)
        committed.append(tuple(row[:length]))
    tokens = predict.tolist()
    return [tuple(tokens[i] for i in row) for row in committed]


def assert_laws(observed: dict[Path, Counter[int]], settings: Settings, grammar: bool = False) -> None:
    """Chi-square of the tokens counted after each path; tokens of probability 0 never appear."""
    seen, expected, groups = [], [], 0
    for path, counts in observed.items():
        law, total = settings.law(path, grammar), counts.total()
        assert not [token for token in counts if law[token] == 0]
        frequent = [t for t in range(VOCAB) if law[t] * total >= 5]
        rest = [t for t in range(VOCAB) if t not in frequent]
        cells = [[t] for t in frequent] + ([rest] if law[rest].sum() * total >= 1 else [])
        if len(cells) < 2:
            continue
        groups += 1
        group_seen = np.array([sum(counts[t] for t in cell) for cell in cells], dtype=float)
        group_expected = np.array([law[cell].sum() for cell in cells])
        seen.append(group_seen)
        expected.append(group_expected / group_expected.sum() * group_seen.sum())
    if groups:
        # Each path's cells sum to its own total, which costs one degree of freedom.
        result = chisquare(np.concatenate(seen), np.concatenate(expected), ddof=groups - 1)
        assert result.pvalue > 1e-3


def first_tokens(committed: list[Path]) -> dict[Path, Counter[int]]:
    return {(): Counter(tokens[0] for tokens in committed)}


def second_tokens(committed: list[Path]) -> dict[Path, Counter[int]]:
    """Counts of the second token after each first token that was accepted."""
    counts: dict[Path, Counter[int]] = {}
    for tokens in committed:
        if len(tokens) > 1:
            counts.setdefault(tokens[:1], Counter())[tokens[1]] += 1
    return counts


@pytest.mark.parametrize("grammar", [False, True], ids=["free", "grammar"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_committed_tokens_follow_the_targets_own_distribution(
    sampler: Any, draft: Draft, settings: Settings, grammar: bool
) -> None:
    torch.manual_seed(0)
    count = DRAWS if settings == SETTINGS["plain"] else DRAWS // 10

    committed = commit(sampler, draft, [request()] * count, sampling_info([settings] * count), grammar)

    assert_laws(first_tokens(committed), settings, grammar)
    assert_laws(second_tokens(committed), settings, grammar)
    law = settings.law((), grammar)
    offered = {draft.path(i)[0] for i, parent in enumerate(draft.parents) if parent == 0}
    accepted = {token for (token,) in second_tokens(committed)}
    assert {t for t in offered if law[t] > 0.01} <= accepted <= {t for t in offered if law[t] > 0}


def test_requests_of_one_batch_keep_their_own_settings(sampler: Any) -> None:
    torch.manual_seed(1)
    mixed = [Settings(temperature=0.5), Settings(top_k=1), Settings(top_p=0.5), Settings(bias={1: 4.0})]

    committed = commit(
        sampler, DRAFTS["every first token"], [request()] * DRAWS, sampling_info(mixed * (DRAWS // 4))
    )

    for i, settings in enumerate(mixed):
        assert_laws(first_tokens(committed[i::4]), settings)
        assert_laws(second_tokens(committed[i::4]), settings)


def test_the_chi_square_tells_accepting_every_draft_from_sampling() -> None:
    """What a lossy verifier would do must not pass: the best token always, or a warmer target."""
    best = int(np.argmax(target_logits(())))
    law = Settings().law(())
    greedy = {(): Counter({best: DRAWS})}
    rng = np.random.default_rng(0)
    warm = {(): Counter(rng.choice(VOCAB, size=DRAWS, p=Settings(temperature=1.1).law(())).tolist())}
    exact = {(): Counter(rng.choice(VOCAB, size=DRAWS, p=law).tolist())}

    assert_laws(exact, Settings())
    for lossy in (greedy, warm):
        with pytest.raises(AssertionError):
            assert_laws(lossy, Settings())


def greedy_reply(grammar: bool, bias: dict[int, float], repeat_cost: float, length: int) -> Path:
    """Plain greedy decoding of the target, one token at a time."""
    path: Path = ()
    while len(path) < length:
        logits = target_logits(path)
        for token, times in Counter([ROOT, *path]).items():
            logits[token] -= repeat_cost * times
        for token, value in bias.items():
            logits[token] += value
        if grammar:
            logits[~allowed_after(path)] = -np.inf
        path += (int(np.argmax(logits)),)
    return path


@pytest.mark.parametrize("grammar", [False, True], ids=["free", "grammar"])
@pytest.mark.parametrize("repeat_cost", [0.0, 2.0], ids=["free repeats", "frequency penalty"])
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_greedy_commits_what_plain_greedy_decoding_would(
    sampler: Any, draft: Draft, repeat_cost: float, grammar: bool
) -> None:
    greedy = Settings(top_k=1, bias={2: 0.8})

    committed = commit(
        sampler, draft, [request(frequency_penalty=repeat_cost)] * 2, sampling_info([greedy] * 2), grammar
    )

    reply = greedy_reply(grammar, greedy.bias, repeat_cost, 4)
    accepted = 0
    paths = [draft.path(i) for i in range(len(draft.tokens))]
    while reply[: accepted + 1] in paths:
        accepted += 1
    assert committed == [reply[: accepted + 1]] * 2


def test_a_perfect_greedy_chain_is_accepted_whole(sampler: Any) -> None:
    committed = commit(sampler, DRAFTS["perfect chain"], [request()], sampling_info([Settings(top_k=1)]))

    assert committed == [greedy_reply(False, {}, 0.0, 4)]


def test_every_node_is_drawn_with_its_requests_seed_at_its_own_position(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a seeded request commits what plain decoding would. The hash itself is native code."""
    draws = []

    def record(logprobs: Tensor, seed: Tensor, positions: Tensor) -> Tensor:
        draws.extend(zip(seed.tolist(), positions.tolist(), strict=True))
        return logprobs.argmax(-1, keepdim=True)

    monkeypatch.setattr(sampler_module, "multinomial_with_seed", record)
    info = replace(sampling_info([Settings()] * 2), sampling_seed=torch.tensor([7, 8]))

    commit(sampler, Draft([ROOT, 3, 0, 5], [-1, 0, 1, 0]), [request()] * 2, info)

    depths = [0, 1, 2, 1]
    assert draws == [(seed, PROMPT + depth) for seed in (7, 8) for depth in depths]


def penalised(logits: Tensor, req: Any, draft_path: list[int]) -> Tensor:
    """Plain decoding's penalties after the reply so far and ``draft_path``."""
    params, reply = req.sampling_params, [*req.output_ids, *draft_path]
    expected = logits.clone()
    for token in range(len(logits)):
        times = reply.count(token)
        if times:
            value = logits[token] - params.frequency_penalty * times - params.presence_penalty
            factor = params.repetition_penalty
            expected[token] = value * factor if value < 0 else value / factor
    if len(reply) < params.min_new_tokens:
        stops = {*(params.stop_token_ids or ()), *req.eos_token_ids, req.tokenizer.eos_token_id}
        for token in stops | set(req.tokenizer.additional_stop_token_ids or ()):
            expected[token] = float("-inf")
    return expected


PENALTIES = {
    "none": {},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": 0.9},
    "repetition": {"repetition_penalty": 1.4},
    "reward": {"frequency_penalty": -0.5, "repetition_penalty": 0.8},
    "min_new_tokens": {"min_new_tokens": 4, "stop_token_ids": {1, 2}},
    "min_new_tokens reached": {"min_new_tokens": 2},
    "all": {
        "frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.2, "min_new_tokens": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize("params", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("seed", range(5))
def test_penalties_count_the_reply_and_each_nodes_own_path(params: dict[str, Any], seed: int) -> None:
    rng, nodes = random.Random(seed), 8
    reqs = [request(), request(**params), request(**params)]
    reqs[1].output_ids = [3, 3]
    reqs[2].output_ids = [rng.randrange(VOCAB) for _ in range(3)]
    reqs[2].tokenizer.additional_stop_token_ids = {0}
    forest = [random_parents(rng, nodes) for _ in reqs]
    tokens = [[req.output_ids[-1], *(rng.randrange(VOCAB) for _ in range(nodes - 1))] for req in reqs]
    logits = torch.randn(3, nodes, VOCAB, generator=torch.Generator().manual_seed(seed))
    expected = torch.stack(
        [
            torch.stack(
                [
                    penalised(logits[b, i], req, [tokens[b][j] for j in path_of(tree, i)[1:]])
                    for i in range(nodes)
                ]
            )
            for b, (req, tree) in enumerate(zip(reqs, forest, strict=True))
        ]
    )

    masks = torch.stack([mask_of(tree, nodes) for tree in forest]).flatten()
    apply_path_penalties(logits, reqs, torch.tensor(tokens), masks)

    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("idle", [True, False])
def test_sglangs_own_algorithms_sample_instead_of_taking_the_argmax(
    monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    monkeypatch.setattr(sampling, "_sampler", lambda: "sampler")
    monkeypatch.setattr(sampling, "sample_tree", lambda *args: ("ours", args))
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: idle))
    output = SimpleNamespace(next_token_logits="logits")

    took, args = sampling.sample_as_plain(
        lambda *args, **options: ("SGLang's", args), "tree", batch, output, None, watermark_state=None
    )

    expected = ("tree", batch, output, None) if idle else ("sampler", "tree", batch, "logits", None)
    assert (took, args) == ("SGLang's" if idle else "ours", expected)
