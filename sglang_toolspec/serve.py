"""``sglang-toolspec serve``: SGLang's own launcher with the environment and defaults filled in."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sglang_toolspec import gpu_width, lifeline
from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.constraint import MAX_WHITESPACE
from sglang_toolspec.plugin import check_sglang_version
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.cpu import environment

PARSER_OF_MODEL_TYPE = {
    "qwen2": "qwen25",
    "qwen3": "qwen25",
    "qwen3_moe": "qwen25",
    "llama": "llama3",
    "mistral": "mistral",
    "deepseek_v3": "deepseekv3",
    "gpt_oss": "gpt-oss",
    "glm4_moe": "glm45",
    "kimi_k2": "kimi_k2",
}
"""SGLang's ``--tool-call-parser`` for the ``model_type`` of a Hugging Face config."""

CPU_KV_TOKENS = 32768


def has_accelerator() -> bool:
    """Whether PyTorch sees a GPU (CUDA, ROCm or XPU)."""
    import torch

    return bool(torch.cuda.is_available() or (hasattr(torch, "xpu") and torch.xpu.is_available()))


def choose_device(flags: list[str]) -> str:
    """``cpu`` or ``gpu``: what ``--device`` says, else what this machine has."""
    named = _value(flags, "--device")
    if named:
        return "cpu" if named == "cpu" else "gpu"
    return "gpu" if has_accelerator() else "cpu"


def prepare_environment(device: str) -> None:
    """Set what SGLang and its child processes read from the environment."""
    if device == "cpu":
        os.environ[environment.SWITCH] = "1"
        environment.quiet_threads()
        environment.keep_memory()
        environment.install_standin()


def command_line(model: str, flags: list[str], device: str) -> list[str]:
    """SGLang's arguments: ``flags`` as given, and defaults for what they leave open."""
    folder = resolve_model(model)
    defaults = {
        "--model-path": folder,
        "--speculative-algorithm": "TOOLSPEC",
        "--constrained-json-max-whitespace-cnt": str(MAX_WHITESPACE),
    }
    if parser := _tool_call_parser(folder):
        defaults["--tool-call-parser"] = parser
    if device == "cpu":
        defaults |= {
            "--device": "cpu",
            "--dtype": cpu_dtype(),
            "--max-total-tokens": str(CPU_KV_TOKENS),
        }
        if environment.native_kernels() is None:
            defaults["--attention-backend"] = "torch_native"
    elif width := _measured_width(folder, flags):
        defaults["--speculative-num-draft-tokens"] = str(width)
    missing = [part for name, value in defaults.items() if not _given(flags, name) for part in (name, value)]
    if device == "cpu":
        # An idle scheduler polls; on a few cores that takes one from whoever computes.
        switches = ("--disable-cuda-graph", "--sleep-on-idle")
        missing += [switch for switch in switches if not _given(flags, switch)]
    return [*missing, *_without_none_algorithm(flags)]


def cpu_dtype() -> str:
    """bfloat16 where the CPU multiplies it natively, else float32.

    Without such instructions a product of several rows is computed row by row, so
    verifying a tree would cost as much as decoding it token by token.
    """
    import torch

    return "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"


def resolve_model(model: str) -> str:
    """A folder stays as it is; a known name becomes its cached folder; else it is the hub's."""
    if Path(model).is_dir():
        return model
    from sglang_toolspec.model import MODELS, cached

    if model.startswith((".", "/", "~")):
        raise UserError(f"there is no model folder at {model}")
    if model not in MODELS and "/" not in model:
        raise UserError(f"'{model}' is neither a folder, nor one of {', '.join(MODELS)}, nor OWNER/NAME")
    if folder := cached(model):
        return str(folder)
    if model in MODELS:
        raise UserError(f"model {model} is not fetched yet; run: sglang-toolspec model fetch {model}")
    return model


def run(model: str, flags: list[str]) -> None:
    """Start the server in this process; returns when it stops."""
    lifeline.follow()
    check_sglang_version()
    device = choose_device(flags)
    prepare_environment(device)
    argv = command_line(model, flags, device)
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        server_args = prepare_server_args(argv)
        server_args.resolve_once()
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _measured_width(folder: str, flags: list[str]) -> int | None:
    """Of TOOLSPEC's trees, what ``bench gpu-check`` found to be the fastest on this GPU."""
    others = (_value(flags, "--speculative-algorithm") or "TOOLSPEC").upper() != "TOOLSPEC"
    if others or Config.from_env().recipe == "paper":
        return None
    return gpu_width.known(gpu_width.gpu_name(), folder)


def _tool_call_parser(folder: str) -> str | None:
    config = Path(folder) / "config.json"
    if not config.is_file():
        return None
    try:
        return PARSER_OF_MODEL_TYPE.get(json.loads(config.read_text()).get("model_type"))
    except ValueError as error:
        raise UserError(f"{config} is not valid JSON ({error}); fetch the model again") from error


def _without_none_algorithm(flags: list[str]) -> list[str]:
    """``--speculative-algorithm none`` means plain decoding; SGLang has no such value."""
    algorithm = _value(flags, "--speculative-algorithm")
    if algorithm is None or algorithm.lower() != "none":
        return flags
    at = next(i for i, flag in enumerate(flags) if flag.startswith("--speculative-algorithm"))
    return flags[:at] + flags[at + (1 if "=" in flags[at] else 2) :]


def _given(flags: list[str], name: str) -> bool:
    return any(flag == name or flag.startswith(f"{name}=") for flag in flags)


def _value(flags: list[str], name: str) -> str | None:
    for i, flag in enumerate(flags):
        if flag == name and i + 1 < len(flags):
            return flags[i + 1]
        if flag.startswith(f"{name}="):
            return flag.split("=", 1)[1]
    return None
