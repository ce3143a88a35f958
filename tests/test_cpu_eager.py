"""What SGLang compiles on a GPU runs without a compiler on a CPU."""

from __future__ import annotations

import torch

from sglang_toolspec.runtime.engine.cpu.eager import eager


def test_nothing_is_compiled() -> None:
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(graph)
        return graph

    doubled = torch.compile(lambda x: x * 2, backend=backend)

    assert eager(doubled, torch.ones(3)).tolist() == [2.0] * 3
    assert not compiled
