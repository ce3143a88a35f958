"""Train an EAGLE head on a model's own tool-call replies, on a CPU.

    sglang-toolspec serve MODEL --dtype float32 --toolspec-record recorded.jsonl    # and ask it things
    python examples/train_eagle_head.py --model FOLDER --replies recorded.jsonl --output head
    sglang-toolspec serve FOLDER --speculative-algorithm EAGLE --speculative-draft-model-path head \
        --speculative-token-map head/hot_token_id.pt

Needs torch, transformers and rich, no SGLang. The target's hidden states are computed once and kept
below --output, as is the state after each epoch: the same command goes on where it stopped.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from eagle_head import EagleHead, Tokens, accepted, save_head
from rich.progress import Progress
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache

WORK = "training"
"""Below --output, since SGLang loads every weight file that lies beside the head."""
MAX_TOKENS = 2048
"""Longer requests are left out: the memory of a training step is bounded by them."""
PROMPT_SAMPLE = 96
"""Positions of each prompt whose next token is learned, besides the whole reply."""
BATCH = 4
"""Requests between two steps of the optimiser."""
GUESSED = 0.25
"""Share of hidden states that the head learns to read as it guessed them, as it does when it drafts."""
CE_WEIGHT = 0.5


@dataclass(frozen=True)
class Reply:
    """A request: ``ids`` of prompt and reply; the reply begins at ``prompt``."""

    ids: Sequence[int]
    prompt: int


def read_replies(paths: Sequence[Path]) -> list[Reply]:
    """Of files that ``--toolspec-record`` wrote; any JSON lines with ``prompt_ids`` and ``output_ids``.

    Those that begin alike come one after another.
    """
    replies = {}
    for path in paths:
        with path.open() as lines:
            for number, line in enumerate(lines, start=1):
                row = json.loads(line)
                if "toolspec_record" in row:
                    continue
                if not row.get("prompt_ids") or len(row.get("output_ids", ())) < 2:
                    continue
                ids = (*row["prompt_ids"], *row["output_ids"])
                if not all(isinstance(i, int) and i >= 0 for i in ids):
                    raise SystemExit(f"{path}, line {number}: token ids must be whole numbers")
                if len(ids) <= MAX_TOKENS:
                    replies[ids] = Reply(ids, len(row["prompt_ids"]))
    if not replies:
        raise SystemExit(f"no replies in {', '.join(map(str, paths))}: record some with --toolspec-record")
    return sorted(replies.values(), key=lambda reply: reply.ids)


class Features:
    """The target's last hidden states (after its final norm) of all replies, float16, in one file.

    What a reply shares with the one before it, as turns of one dialogue do, is computed once.
    """

    def __init__(self, folder: Path, replies: Sequence[Reply], hidden: int, model: str):
        self.replies = replies
        self.starts = np.cumsum([0, *(len(reply.ids) for reply in replies)])
        told = json.dumps([model, [[r.ids, r.prompt] for r in replies]])
        name = hashlib.sha256(told.encode()).hexdigest()[:12]
        self._done = folder / f"features-{name}.done"
        path = folder / f"features-{name}.f16"
        mode = "r+" if path.exists() else "w+"
        self._array = np.memmap(path, np.float16, mode, shape=(int(self.starts[-1]), hidden))

    def fill(self, target: Any, progress: Progress) -> None:
        done = int(self._done.read_text()) if self._done.exists() else 0
        task = progress.add_task("hidden states of the target", total=len(self.replies), completed=done)
        read, past = (), DynamicCache()
        for i in range(done, len(self.replies)):
            ids, start = self.replies[i].ids, int(self.starts[i])
            same = min(shared(read, ids), len(ids) - 1)  # a layer wants something to read
            if same < len(read):
                past.crop(same - len(read))
            with torch.inference_mode():
                told = target.model(torch.tensor([ids[same:]]), past_key_values=past, use_cache=True)
            before = int(self.starts[i - 1]) if same else start
            self._array[start : start + same] = self._array[before : before + same]
            self._array[start + same : start + len(ids)] = told.last_hidden_state[0].float().numpy()
            self._array.flush()
            read = ids
            self._done.write_text(str(i + 1))
            progress.advance(task)

    def __getitem__(self, i: int) -> Tensor:
        return torch.from_numpy(self._array[self.starts[i] : self.starts[i + 1]].astype(np.float32))


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    for same, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return same
    return min(len(one), len(other))


def frequent_tokens(replies: Sequence[Reply], size: int, vocabulary: int) -> Tensor:
    """Ids of ``size`` tokens, ascending: those of the replies and prompts, then the tokenizer's first."""
    seen = Counter(i for reply in replies for i in reply.ids)
    seen += Counter({i: 1 << 20 for reply in replies for i in reply.ids[reply.prompt :]})
    chosen = dict.fromkeys(i for i, _ in seen.most_common(size))
    for i in range(vocabulary):
        if len(chosen) >= size:
            break
        chosen[i] = None
    return torch.tensor(sorted(chosen))


def loss_of(head: EagleHead, tokens: Tokens, reply: Reply, features: Tensor, context: int) -> Tensor:
    """Of the guessed hidden states and tokens of one reply, after at most ``context`` prompt tokens."""
    first = max(0, reply.prompt - context)
    ids = torch.tensor(reply.ids[first:])
    known, positions = features[first:-1], torch.arange(first, len(reply.ids) - 1)
    embedding, wanted = tokens.embedding[ids[1:]], features[first + 1 :]
    with torch.no_grad():
        guesses, _ = head(embedding, known, positions)
        replaced = torch.rand(len(known), 1) < GUESSED
        replaced[0] = False
        read = torch.where(replaced, guesses.roll(1, dims=0), known)
    guesses, _ = head(embedding, read, positions)
    learned = torch.randperm(len(guesses))[:PROMPT_SAMPLE]
    reply_from = max(0, reply.prompt - first - 2)
    learned = torch.cat((learned[learned < reply_from], torch.arange(reply_from, len(guesses))))
    target = tokens.logits(wanted[learned]).softmax(-1)
    cross_entropy = -(target * tokens.logits(guesses[learned]).log_softmax(-1)).sum(-1).mean()
    return functional.smooth_l1_loss(guesses, wanted) + CE_WEIGHT * cross_entropy


class Training:
    """Head, optimiser and what was reached, kept in ``state.safetensors`` after each epoch."""

    def __init__(self, folder: Path, head: EagleHead, rate: float, steps: int):
        self._path = folder / "state.safetensors"
        self._head = head
        self._rate, self._steps = rate, steps
        self.optimiser = torch.optim.AdamW(head.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.step, self.epochs = 0, []
        if self._path.exists():
            self._load()

    def _load(self) -> None:
        from safetensors import safe_open

        with safe_open(self._path, "pt") as kept:
            told = json.loads(kept.metadata()["training"])
        parts = load_file(self._path)
        head, state = {}, self.optimiser.state_dict()
        for name, tensor in parts.items():
            kind, _, rest = name.partition(".")
            if kind == "head":
                head[rest] = tensor
            else:
                index, key = rest.split(".")
                state["state"].setdefault(int(index), {})[key] = tensor
        self._head.load_state_dict(head)
        self.optimiser.load_state_dict(state)
        self.step, self.epochs = told["step"], told["epochs"]

    def save(self) -> None:
        parts = {f"head.{name}": t.detach().clone() for name, t in self._head.state_dict().items()}
        for index, kept in self.optimiser.state_dict()["state"].items():
            parts |= {f"adam.{index}.{key}": value.clone() for key, value in kept.items()}
        told = {"training": json.dumps({"step": self.step, "epochs": self.epochs})}
        partial = self._path.with_suffix(".partial")
        save_file(parts, partial, told)
        partial.replace(self._path)

    def update(self) -> None:
        """One step: a short rise of the learning rate, then a linear fall to a tenth."""
        rise = min(1.0, (self.step + 1) / 20)
        fall = 1 - 0.9 * min(1.0, self.step / self._steps)
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate * rise * fall
        torch.nn.utils.clip_grad_norm_(self._head.parameters(), 0.5)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.step += 1


def run_epoch(training: Training, losses: Iterator[Tensor], count: int, tick: Any) -> float:
    """Mean loss over ``count`` requests."""
    total = 0.0
    for i, loss in enumerate(losses, start=1):
        (loss / BATCH).backward()
        total += loss.item()
        if i % BATCH == 0 or i == count:
            training.update()
        tick()
    return total / count


def accept_length(head: EagleHead, tokens: Tokens, features: Features, steps: int) -> float:
    """Tokens per verify step of greedy chains over ``features``' replies."""
    made = verified = 0
    for i, reply in enumerate(features.replies):
        tokens_made, steps_taken = accepted(
            head, tokens, torch.tensor(reply.ids), features[i], reply.prompt, steps
        )
        made, verified = made + tokens_made, verified + steps_taken
    return made / max(1, verified)


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    config = json.loads((options.model / "config.json").read_text())
    if config.get("model_type") != "qwen2":
        raise SystemExit(f"{options.model} is a {config.get('model_type')} model; this head is for qwen2")
    work = options.output / WORK
    work.mkdir(parents=True, exist_ok=True)
    replies = read_replies(options.replies)
    held_out = read_replies(options.held_out) if options.held_out else []
    with Progress() as progress:
        target = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
        name = options.model.resolve().name
        sets = [Features(work, r, config["hidden_size"], name) for r in (replies, held_out) if r]
        for features in sets:
            features.fill(target, progress)
        hot = frequent_tokens(replies, options.vocabulary, config["vocab_size"])
        embedding = target.get_input_embeddings().weight.detach()
        tokens = Tokens(embedding, hot, target.get_output_embeddings().weight.detach()[hot].clone())
        del target
        train(options, config, sets, tokens, progress)


def train(
    options: argparse.Namespace,
    config: dict[str, Any],
    sets: Sequence[Features],
    tokens: Tokens,
    progress: Progress,
) -> None:
    head, features = EagleHead(config), sets[0]
    updates = -(-len(features.replies) // BATCH) * options.epochs
    training = Training(options.output / WORK, head, options.rate, updates)
    count = len(features.replies)
    for epoch in range(len(training.epochs), options.epochs):
        began = time.monotonic()
        task = progress.add_task(f"epoch {epoch + 1} of {options.epochs}", total=count)
        order = np.random.default_rng((options.seed, epoch)).permutation(count).tolist()
        losses = (loss_of(head, tokens, features.replies[i], features[i], options.context) for i in order)
        loss = run_epoch(training, losses, count, lambda task=task: progress.advance(task))
        minutes = round((time.monotonic() - began) / 60, 2)
        told: dict[str, Any] = {"epoch": epoch + 1, "loss": round(loss, 4), "minutes": minutes}
        if len(sets) > 1:
            told["accept_length_held_out"] = round(accept_length(head, tokens, sets[1], options.steps), 3)
        training.epochs.append(told)
        training.save()
        described = {"replies": count, "draft_steps": options.steps, "epochs": training.epochs}
        save_head(options.output, head, config, tokens.hot, described)
        progress.console.print(json.dumps(told))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train an EAGLE head on a model's own replies.")
    parser.add_argument("--model", type=Path, required=True, help="folder of the target, a Qwen2 model")
    parser.add_argument("--replies", type=Path, nargs="+", required=True, help="recorded requests (JSONL)")
    parser.add_argument("--held-out", type=Path, nargs="*", help="others, for the accept length per epoch")
    parser.add_argument("--output", type=Path, required=True, help="folder of the head")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate at its highest")
    parser.add_argument("--vocabulary", type=int, default=8192, help="tokens that the head can draft")
    parser.add_argument("--context", type=int, default=256, help="prompt tokens before a reply that are read")
    parser.add_argument("--steps", type=int, default=3, help="drafts per step of the reported accept length")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
