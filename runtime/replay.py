"""Replays recorded greedy replies through a session, without a model: what would drafts have saved?

Greedy verification accepts exactly the nodes that continue the recorded reply, so the
replay takes the same steps as a server would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglang_toolspec.runtime.session import Session
from sglang_toolspec.runtime.tree import DraftTree


@dataclass(frozen=True)
class ReplayStep:
    """One verify step: ``tree`` was proposed, ``accepted`` are its nodes that were right (without
    the root), ``committed`` the tokens of the step, the bonus token last."""

    tree: DraftTree
    accepted: list[int]
    committed: list[int]


def replay(session: Session, reply: Sequence[int], width: int) -> Iterator[ReplayStep]:
    """Steps of a reply with trees of at most ``width`` nodes, the root included; the session's
    ``attribution`` sums them.

    The first token is the prefill's and takes no step.
    """
    session.commit(reply[:1])
    done = 1
    while done < len(reply):
        tree = session.draft(width)
        session.sent(tree)
        accepted = tree.follow(reply[done:])
        committed = list(reply[done : done + len(accepted) + 1])
        yield ReplayStep(tree, accepted[: len(committed)], committed)
        session.commit(committed)
        done += len(committed)

