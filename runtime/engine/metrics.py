"""Prometheus metrics of drafting, beside SGLang's own in ``/metrics``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sglang.srt.runtime_context import get_observability, get_parallel, get_serving

from sglang_toolspec.runtime.attribution import Attribution

PREFIX = "sglang_toolspec_"


class Metrics:
    """Written in the scheduler process; SGLang's HTTP process collects them from shared files.

    ``registry`` is prometheus_client's own by default. Mutable; one per process and registry.
    """

    def __init__(self, labels: Mapping[str, Any], registry: Any = None):
        # prometheus_client takes its multiprocess mode from the environment when it is imported.
        import prometheus_client as prometheus

        self._labels = dict(labels)
        self._seen: Counter[str] = Counter()
        registry = registry or prometheus.REGISTRY

        def counter(name: str, about: str, *more: str) -> Any:
            return prometheus.Counter(PREFIX + name, about, [*labels, *more], registry=registry)

        self._requests = counter("requests", "Requests that finished after at least one verify step.")
        self._tokens = counter("tokens", "Reply tokens of requests that ended.")
        self._steps = counter("verify_steps", "Verify steps of requests that ended, each request's own.")
        self._proposed = counter("proposed_tokens", "Draft tokens that were verified.", "source")
        self._accepted = counter("accepted_tokens", "Draft tokens that were accepted.", "source")
        self._drafting = counter("drafting_seconds", "Host time spent on drafting.")
        self._faults = counter("faults", "Drafting faults; each cost drafts only.", "reason")
        self._sessions = prometheus.Gauge(
            f"{PREFIX}sessions",
            "Requests that are drafted for.",
            list(labels),
            registry=registry,
            multiprocess_mode="mostrecent",
        )

    def ended(self, part: Attribution, finished: bool) -> None:
        """``part`` of a reply, and the reply itself where it is ``finished``."""
        self._requests.labels(**self._labels).inc(finished)
        self._tokens.labels(**self._labels).inc(part.tokens)
        self._steps.labels(**self._labels).inc(part.steps)
        for counter, counts in ((self._proposed, part.proposed), (self._accepted, part.accepted)):
            for source, count in counts.items():
                counter.labels(**self._labels, source=source).inc(count)

    def drafted(self, seconds: float) -> None:
        """For one step of a batch."""
        self._drafting.labels(**self._labels).inc(seconds)

    def now(self, sessions: int, faults: Mapping[str, int]) -> None:
        """How many sessions are open, and the faults by reason since start."""
        self._sessions.labels(**self._labels).set(sessions)
        for reason, count in faults.items():
            self._faults.labels(**self._labels, reason=reason).inc(count - self._seen[reason])
            self._seen[reason] = count


def server_metrics() -> Metrics | None:
    """With the labels of SGLang's scheduler metrics; ``None`` without ``--enable-metrics``."""
    if not get_observability().enable_metrics:
        return None
    parallel = get_parallel()
    labels = {
        "model_name": get_serving().served_model_name,
        "engine_type": "unified",  # TOOLSPEC refuses prefill/decode disaggregation
        "tp_rank": parallel.tp_rank,
        "pp_rank": parallel.pp_rank,
        "moe_ep_rank": parallel.moe_ep_rank,
    }
    if parallel.dp_rank is not None:
        labels["dp_rank"] = parallel.dp_rank
    return Metrics(labels | (get_observability().extra_metric_labels or {}))
