"""Replays recorded greedy replies through a session, without a model: what would drafts have saved?

Greedy verification accepts exactly the nodes that continue the recorded reply, so the replay of a
request that was alone on its server takes the steps that the server took. Grammar masks are not
replayed: on a server they take nodes out of a tree and force text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.drafters.recycling import Candidates
from sglang_toolspec.runtime.recording import Recorded
from sglang_toolspec.runtime.session import Session
from sglang_toolspec.runtime.tree import DraftTree
from sglang_toolspec.runtime.width import StepCosts


@dataclass(frozen=True)
class ReplayStep:
    """One verify step: ``tree`` was proposed, ``accepted`` are its nodes that were right (without
    the root), ``committed`` the tokens of the step, the bonus token last."""

    tree: DraftTree
    accepted: list[int]
    committed: list[int]


def replay(
    session: Session, reply: Sequence[int], width: int, costs: StepCosts | None = None
) -> Iterator[ReplayStep]:
    """Steps of a reply with trees of at most ``width`` nodes, the root included; the session's
    ``attribution`` sums them. With ``costs`` a tree is only as wide as it pays.

    The first token is the prefill's and takes no step.
    """
    session.commit(reply[:1])
    done = 1
    while done < len(reply):
        tree = session.draft(width)
        if costs is not None:
            tree = tree.first(costs.best_width([tree]))
        session.sent(tree)
        accepted = tree.follow(reply[done:])
        committed = list(reply[done : done + len(accepted) + 1])
        yield ReplayStep(tree, accepted[: len(committed)], committed)
        session.commit(committed)
        done += len(committed)


class Assemble(Protocol):
    """What a simulation needs of an ``Assembler``."""

    def __call__(self, request: DraftRequest) -> Session: ...

    def candidates(self, tenant: str) -> Candidates: ...


@dataclass
class Simulation:
    """Sums over requests that are replayed one after another. Mutable.

    With ``costs`` trees are only as wide as they pay, unless they are ``whole``.

    ``seconds`` is what their verify steps would take by ``costs``, prefill and drafting left out.
    """

    width: int
    costs: StepCosts | None = None
    whole: bool = False
    replies: int = 0
    sums: Attribution = field(default_factory=Attribution)
    seconds: float = 0.0

    def add(self, assemble: Assemble, recorded: Recorded) -> None:
        """Replay one request; what it teaches stays with ``assemble``."""
        for _ in self.steps(assemble, recorded):
            pass

    def steps(self, assemble: Assemble, recorded: Recorded) -> Iterator[None]:
        """``add``, step by step."""
        session, reply = assemble(recorded.request), recorded.output_ids
        thought, at = assemble.candidates(recorded.tenant), 0
        for step in replay(session, reply, self.width, None if self.whole else self.costs):
            if self.costs is not None:
                self.seconds += self.costs.seconds(len(step.tree))
            after = at + len(step.committed)  # the step's input: its root and what it accepted
            ids, chances = recorded.thought_likely(at, after)
            thought.note(reply[at : at + len(ids)], ids, chances)
            at = after
            yield
        session.close()
        self.replies += 1
        self.sums.add(session.attribution)

    @property
    def tokens_per_s(self) -> float | None:
        """``None`` where nothing is known of costs."""
        return self.sums.tokens / self.seconds if self.seconds else None

    @property
    def nodes_per_step(self) -> float:
        """The root included."""
        return 1 + self.sums.proposed.total() / self.sums.steps if self.sums.steps else 0.0
