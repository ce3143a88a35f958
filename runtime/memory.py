"""What is remembered between requests, kept apart by tenant.

A tenant is what SGLang keeps prefixes apart by, ``extra_key`` and ``cache_salt``: what one wrote
never shows in another's drafts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.runtime.drafters.recycling import Candidates
from sglang_toolspec.runtime.drafters.suffix import TokenText
from sglang_toolspec.runtime.guessing.remembered import RememberedValues
from sglang_toolspec.runtime.lru import kept

MAX_TENANTS = 128
REPLY_TOKENS = 1 << 14
"""Tokens of earlier replies that are kept for each tenant."""
MAX_KINDS = 64


@dataclass
class TenantMemory:
    """Mutable, bounded."""

    replies: TokenText = field(default_factory=lambda: TokenText(REPLY_TOKENS))
    values: RememberedValues = field(default_factory=RememberedValues)
    candidates: Candidates = field(default_factory=Candidates)
    _habits: OrderedDict[str, Habits] = field(default_factory=OrderedDict)

    def habits(self, kind: str) -> Habits:
        """How this tenant's calls are written; ``kind`` tells masked replies from free ones."""
        return kept(self._habits, kind, MAX_KINDS, Habits)


class Memories:
    """The memory of each tenant; the longest unused ones are forgotten."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[Hashable, TenantMemory] = OrderedDict()

    def of(self, tenant: Hashable) -> TenantMemory:
        return kept(self._tenants, tenant, MAX_TENANTS, TenantMemory)
