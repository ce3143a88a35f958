"""Replays recorded greedy replies through a session, without a model: what would drafts have saved?

Greedy verification accepts exactly the nodes that continue the recorded reply, so the
replay takes the same steps as a server would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sglang_toolspec.runtime.session import Session
from sglang_toolspec.runtime.tree import DraftTree


@dataclass(frozen=True)
class ReplayStep:
    """One verify step: ``tree`` was proposed, ``accepted`` are its nodes that were right (without
    the root), ``committed`` the tokens of the step, the bonus token last."""

    tree: DraftTree
    accepted: list[int]
    committed: list[int]


@dataclass
class ReplayTotals:
    """Sums over replies. The accept length is SGLang's: tokens by verify steps."""

    replies: int = 0
    tokens: int = 0
    steps: int = 0
    nodes: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    """Accepted draft tokens by source."""

    @property
    def accept_length(self) -> float:
        return self.tokens / self.steps if self.steps else 0.0

    def add(self, reply: Sequence[int], steps: Sequence[ReplayStep]) -> None:
        self.replies += 1
        self.tokens += len(reply)
        self.steps += len(steps)
        self.nodes += sum(len(step.tree) - 1 for step in steps)
        for step in steps:
            self.accepted.update(step.tree.sources[node] for node in step.accepted)


def replay(session: Session, reply: Sequence[int], width: int) -> Iterator[ReplayStep]:
    """Steps of a reply with trees of at most ``width`` nodes, the root included.

    The first token is the prefill's and takes no step.
    """
    session.commit(reply[:1])
    done = 1
    while done < len(reply):
        tree = session.draft(width)
        accepted = accepted_nodes(tree, reply[done:])
        committed = list(reply[done : done + len(accepted) + 1])
        yield ReplayStep(tree, accepted[: len(committed)], committed)
        session.commit(committed)
        done += len(committed)


def accepted_nodes(tree: DraftTree, following: Sequence[int]) -> list[int]:
    """Nodes of ``tree`` that spell the start of ``following``, from the root's child down."""
    children = {(parent, tree.tokens[node]): node for node, parent in enumerate(tree.parents) if node}
    accepted, at = [], 0
    for token in following:
        node = children.get((at, token))
        if node is None:
            break
        accepted.append(node)
        at = node
    return accepted
