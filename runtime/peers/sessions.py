"""Sessions of one drafter alone, for replays."""

from __future__ import annotations

from collections.abc import Callable

from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.calibration import Uncorrected
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.drafters.paper import BY_RANK
from sglang_toolspec.runtime.drafters.recycling import Candidates, RecyclingDrafter
from sglang_toolspec.runtime.memory import Memories
from sglang_toolspec.runtime.peers.prompt_lookup import PromptLookup
from sglang_toolspec.runtime.peers.suffix_decoding import Places, SuffixDecoding
from sglang_toolspec.runtime.rests import Rests
from sglang_toolspec.runtime.session import Faults, Session

Make = Callable[[DraftRequest, Candidates], Drafter]
"""A request's drafter, given what the target thought likely in its tenant's replies."""


class NeverResting(Rests):
    """A drafter that is compared is always asked."""

    def awake(self, source: str) -> bool:
        return True


class PeerSessions:
    """Stands where an ``Assembler`` does in a ``Simulation``."""

    def __init__(self, make: Make, vocab_size: int, faults: Faults):
        self._make = make
        self._vocab_size = vocab_size
        self._faults = faults
        self._memories = Memories()

    def __call__(self, request: DraftRequest) -> Session:
        drafter = self._make(request, self.candidates(request.tenant))
        return Session([drafter], self._vocab_size, self._faults, Uncorrected(), NeverResting())

    def candidates(self, tenant: str) -> Candidates:
        return self._memories.of(tenant).candidates


def prompt_lookup(width: int) -> Make:
    return lambda request, _: PromptLookup(request.prompt)


def token_recycling(width: int) -> Make:
    """A static tree, as in the paper that ours follows."""
    return lambda _, candidates: RecyclingDrafter(candidates, width - 1, BY_RANK)


def suffix_decoding(width: int) -> Make:
    """Replies of a tenant are looked through by its later requests."""
    earlier: dict[str, Places] = {}
    return lambda request, _: SuffixDecoding(
        request.prompt, earlier.setdefault(request.tenant, Places()), width
    )


PEERS: dict[str, Callable[[int], Make]] = {
    "prompt lookup": prompt_lookup,
    "token recycling": token_recycling,
    "suffix decoding": suffix_decoding,
}
"""By name; each is given the most nodes of a tree, the root included."""
