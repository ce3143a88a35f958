"""TOOLSPEC in SGLang's registry: refusals, defaults, hooks, and the CPU stand-in's switch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.engine import algorithm
from sglang_toolspec.runtime.engine.algorithm import ToolSpecAlgorithm, hybrid_reason, refuse
from sglang_toolspec.runtime.engine.cpu import environment
from sglang_toolspec.runtime.engine.hooks import HOOKS, Hook, install_hooks

PLAIN_CONFIG = SimpleNamespace(model_type="qwen2", layer_types=["full_attention", "sliding_attention"])


@pytest.fixture(autouse=True)
def _plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "_hf_config", lambda args: PLAIN_CONFIG)


def server_args(**given: Any) -> SimpleNamespace:
    defaults = {
        "device": "cpu", "model_path": "some/model", "tp_size": 1, "pp_size": 1,
        "enable_dp_attention": False, "page_size": 1, "attention_backend": "torch_native",
        "speculative_num_draft_tokens": None, "speculative_eagle_topk": None,
        "speculative_num_steps": None, "disable_overlap_schedule": False,
        "max_running_requests": None, "enable_mixed_chunk": True, "tokenizer_worker_num": 1,
        "grpc_mode": False, "smg_grpc_mode": False, "disaggregation_mode": "null",
        "enable_deterministic_inference": False, "grammar_backend": None,
    }  # fmt: skip
    return SimpleNamespace(**(defaults | given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tp_size": 2}, "--tp-size 2 --pp-size 1"),
        ({"pp_size": 4}, "--tp-size 1 --pp-size 4"),
        ({"enable_dp_attention": True}, "--enable-dp-attention"),
        ({"tokenizer_worker_num": 2}, "--tokenizer-worker-num"),
        ({"smg_grpc_mode": True}, "gRPC"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode decode"),
        ({"device": "npu"}, "not on device 'npu'"),
        ({"enable_deterministic_inference": True}, "--enable-deterministic-inference"),
        ({"grammar_backend": "outlines"}, "--grammar-backend outlines"),
        ({"page_size": 64}, "--page-size 64 on attention backend 'torch_native'"),
        ({"speculative_num_draft_tokens": 0}, "--speculative-num-draft-tokens must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        refuse(server_args(**given))

    message = str(error.value)
    assert words in message
    assert "\n" not in message
    assert ". " not in message


@pytest.mark.parametrize(
    "given", [{}, {"page_size": None}, {"page_size": 16, "attention_backend": "flashinfer"}]
)
def test_what_can_be_served_is_not_refused(given: dict[str, Any]) -> None:
    refuse(server_args(**given))


HYBRIDS = {
    "layer_types has 'linear_attention'": SimpleNamespace(layer_types=["full_attention", "linear_attention"]),
    "layer_types has 'conv'": SimpleNamespace(layer_types=["conv", "full_attention"]),
    "mamba_d_state": SimpleNamespace(mamba_d_state=16),
    "linear_attn_config": SimpleNamespace(linear_attn_config={"kda_layers": [1]}),
    "hybrid_override_pattern": SimpleNamespace(text_config=SimpleNamespace(hybrid_override_pattern="M-M*")),
}


@pytest.mark.parametrize(("reason", "config"), HYBRIDS.items(), ids=HYBRIDS)
def test_a_model_with_recurrent_layers_is_refused(
    monkeypatch: pytest.MonkeyPatch, reason: str, config: SimpleNamespace
) -> None:
    monkeypatch.setattr(algorithm, "_hf_config", lambda args: config)

    with pytest.raises(UserError, match=r"cannot serve some/model: .*recurrent state") as error:
        refuse(server_args())
    assert f"({reason})" in str(error.value)


@pytest.mark.parametrize("config", [SimpleNamespace(), SimpleNamespace(text_config=None, layer_types=None)])
def test_a_config_that_says_nothing_of_layers_is_not_hybrid(config: SimpleNamespace) -> None:
    assert hybrid_reason(config) is None


def handled(**given: Any) -> SimpleNamespace:
    args = server_args(**given)
    ToolSpecAlgorithm("TOOLSPEC", factory=lambda server_args: None).handle_server_args(args)
    return args


def test_defaults_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSPEC_OVERLAP", "1")  # which a CPU cannot have

    args = handled()

    assert args.disable_overlap_schedule
    assert not args.enable_mixed_chunk
    assert args.max_running_requests == 48
    assert args.speculative_num_draft_tokens == 32
    assert args.speculative_eagle_topk == 8
    assert args.speculative_num_steps == 4


def test_defaults_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSPEC_OVERLAP", raising=False)

    args = handled(device="cuda")

    assert args.disable_overlap_schedule
    assert args.speculative_num_draft_tokens == 32
    assert args.speculative_num_steps == 4


def test_overlap_scheduling_on_a_gpu_is_kept_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSPEC_OVERLAP", "1")

    assert not handled(device="cuda").disable_overlap_schedule


def test_what_the_user_set_is_kept() -> None:
    given = {
        "max_running_requests": 3, "speculative_num_draft_tokens": 5,
        "speculative_num_steps": 7,
    }  # fmt: skip

    args = handled(**given)

    assert {name: getattr(args, name) for name in given} == given


def test_a_chain_of_topk_1_is_not_accepted_for_a_tree() -> None:
    assert handled(speculative_eagle_topk=1).speculative_eagle_topk > 1


def test_few_draft_tokens_still_give_a_step() -> None:
    assert handled(speculative_num_draft_tokens=2).speculative_num_steps == 1


def test_refusals_come_before_anything_is_set() -> None:
    args = server_args(tp_size=2)
    before = dict(vars(args))

    with pytest.raises(UserError):
        ToolSpecAlgorithm("TOOLSPEC", factory=lambda server_args: None).handle_server_args(args)

    assert vars(args) == before


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target.rsplit(".", 1)[-1])
def test_every_hook_has_its_target_in_the_installed_sglang(hook: Hook) -> None:
    assert hook.exists()


@pytest.mark.parametrize(
    "target",
    ["no_such_package.f", "sglang.srt.no_such_module.f", "sglang.srt.plugins.no_such_name", "not a path", ""],
)
def test_a_hook_without_its_target_does_not_exist(target: str) -> None:
    assert not Hook(target, "AFTER", why="", without="", install=lambda: None).exists()


@pytest.fixture
def clean_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``sys.path`` and ``PYTHONPATH`` as in a process that has not seen the stand-in."""
    path = [p for p in sys.path if p != str(environment.STANDIN)]
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    return path


@pytest.mark.parametrize("switch", [None, "0", "", "true"])
def test_nothing_is_installed_while_the_switch_is_off(
    monkeypatch: pytest.MonkeyPatch, clean_paths: list[str], switch: str | None
) -> None:
    if switch is None:
        monkeypatch.delenv(environment.SWITCH, raising=False)
    else:
        monkeypatch.setenv(environment.SWITCH, switch)
    before = list(clean_paths)

    assert not environment.install_standin()

    assert not environment.standin_active()
    assert sys.path == before
    assert os.environ["PYTHONPATH"] == "/somewhere"


def test_the_standin_is_put_first_once_here_and_for_child_processes(
    monkeypatch: pytest.MonkeyPatch, clean_paths: list[str]
) -> None:
    monkeypatch.setenv(environment.SWITCH, "1")
    before = list(clean_paths)

    assert environment.install_standin()
    assert environment.install_standin()

    assert sys.path == [str(environment.STANDIN), *before]
    assert os.environ["PYTHONPATH"] == f"{environment.STANDIN}{os.pathsep}/somewhere"


def fake_sgl_kernel(folder: Path, operations: str) -> Path:
    """A package ``sgl_kernel`` below ``folder`` with its compiled operations at ``operations``."""
    library = folder / "sgl_kernel" / operations
    library.parent.mkdir(parents=True)
    library.touch()
    (folder / "sgl_kernel" / "__init__.py").write_text("WHO = 'the real one'\n")
    (folder / "sgl_kernel" / "speculative.py").write_text("WHO = 'its submodule'\n")
    return library


def test_native_cpu_operations_are_preferred(
    monkeypatch: pytest.MonkeyPatch, clean_paths: list[str], tmp_path: Path
) -> None:
    library = fake_sgl_kernel(tmp_path, "common_ops.abi3.so")
    monkeypatch.setenv(environment.SWITCH, "1")
    clean_paths.insert(0, str(tmp_path))

    assert environment.native_kernels() == library
    assert not environment.install_standin()
    assert not environment.standin_active()


def test_a_cuda_wheel_is_no_native_cpu_build(
    monkeypatch: pytest.MonkeyPatch, clean_paths: list[str], tmp_path: Path
) -> None:
    fake_sgl_kernel(tmp_path, "sm90/common_ops.abi3.so")
    monkeypatch.setenv(environment.SWITCH, "1")
    clean_paths.insert(0, str(tmp_path))

    assert environment.native_kernels() is None
    assert environment.install_standin()


def test_the_standin_offers_what_sglang_imports() -> None:
    import sgl_kernel.speculative

    assert Path(sgl_kernel.__file__).is_relative_to(environment.STANDIN)
    assert callable(sgl_kernel.verify_tree_greedy_cpu)
    assert callable(sgl_kernel.speculative.reconstruct_indices_from_tree_mask)


@pytest.mark.parametrize("module", ["sgl_kernel", "sgl_kernel.speculative"])
def test_the_standin_gives_way_to_the_real_package_while_the_switch_is_off(
    tmp_path: Path, module: str
) -> None:
    fake_sgl_kernel(tmp_path, "common_ops.abi3.so")
    code = f"import {module}; import sgl_kernel; print(sgl_kernel.WHO, '/', {module}.WHO)"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{environment.STANDIN}{os.pathsep}{tmp_path}", environment.SWITCH: "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    submodule = "the real one" if module == "sgl_kernel" else "its submodule"
    assert done.stdout.strip() == f"the real one / {submodule}", done.stderr


def test_the_design_document_lists_every_hook() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (Path(__file__).parents[1] / "docs" / "design.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    for hook in HOOKS:
        name = "`" + ".".join(hook.target.split(".")[-2:]) + "`"
        assert [name, hook.kind, hook.why, hook.without] in rows, name


def test_installing_hooks_twice_registers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    monkeypatch.setattr(HookRegistry, "_hooks", defaultdict(list))
    monkeypatch.setattr("sglang_toolspec.runtime.engine.hooks._installed", set())
    install_hooks()
    install_hooks()
    assert HookRegistry._hooks
    assert all(len(registered) == 1 for registered in HookRegistry._hooks.values())
