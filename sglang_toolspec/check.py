"""``sglang-toolspec check``: is everything in place, and if not, what to do."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

from sglang_toolspec import SGLANG_VERSION, __version__
from sglang_toolspec.errors import UserError


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``remedy`` is empty when ``ok``."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def findings() -> list[Finding]:
    """All checks, in the order in which a failure hides the later ones."""
    found = [Finding("toolspec", True, f"{__version__}, Python {platform.python_version()}")]
    sglang = _guarded("sglang", _sglang, f"pip install sglang=={SGLANG_VERSION}")
    found.append(sglang)
    if not sglang.ok:
        return found
    found.append(_guarded("device", _device, "install PyTorch: pip install torch"))
    found.append(_guarded("kernels", _kernels, "reinstall: pip install --force-reinstall sglang-toolspec"))
    found.append(_guarded("entry point", _entry_point, "reinstall: pip install sglang-toolspec"))
    found.append(
        _guarded("algorithm", _algorithm, "unset SGLANG_PLUGINS, or add 'toolspec' to it; look at the log")
    )
    found.extend(_hooks())
    return found


def report() -> dict[str, Any]:
    """The findings as plain data, with ``ok`` for the whole."""
    found = findings()
    return {"ok": all(f.ok for f in found), "findings": [asdict(f) for f in found]}


def _guarded(name: str, check: Callable[[], str], remedy: str) -> Finding:
    """Run ``check``; its text is the detail, an exception the failure."""
    try:
        return Finding(name, True, check())
    except Exception as error:
        return Finding(name, False, f"{type(error).__name__}: {error}", remedy)


def _sglang() -> str:
    from sglang_toolspec.plugin import check_sglang_version

    try:
        installed = version("sglang")
    except PackageNotFoundError as error:
        raise UserError("SGLang is not installed") from error
    check_sglang_version(installed)
    return installed


def _device() -> str:
    from sglang_toolspec import serve

    device = serve.choose_device([])
    serve.prepare_environment(device)
    if device == "cpu":
        return f"cpu, {serve.cpu_dtype()} by default"
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "gpu"


def _kernels() -> str:
    from sglang_toolspec.runtime.engine.cpu import environment

    if not environment.cpu_engine_on():
        import sgl_kernel

        return f"sgl_kernel {sgl_kernel.__version__}"
    if native := environment.native_kernels():
        return f"native CPU operations in {native.parent}"
    import sgl_kernel

    if "toolspec" not in sgl_kernel.__version__:
        raise UserError(f"sgl_kernel comes from {sgl_kernel.__file__}, which has no CPU operations")
    return "stand-in for sgl_kernel, in plain PyTorch"


def _entry_point() -> str:
    names = [ep.value for ep in entry_points(group="sglang.srt.plugins") if ep.name == "toolspec"]
    if not names:
        raise UserError("no entry point 'toolspec' in the group sglang.srt.plugins")
    return names[0]


def _algorithm() -> str:
    from sglang.srt.plugins import load_plugins
    from sglang.srt.speculative.spec_registry import get_spec

    load_plugins()
    if get_spec("TOOLSPEC") is None:
        raise UserError("TOOLSPEC is not registered after SGLang loaded its plugins")
    return "TOOLSPEC is registered"


def _hooks() -> Iterator[Finding]:
    from sglang_toolspec.runtime.engine.hooks import HOOKS

    for hook in HOOKS:
        name = "hook " + ".".join(hook.target.split(".")[-2:])
        if not hook.needed():
            yield Finding(name, True, f"not needed here ({hook.why})")
        elif hook.exists():
            yield Finding(name, True, hook.why)
        else:
            remedy = f"install the supported release: pip install sglang=={SGLANG_VERSION}"
            yield Finding(name, False, f"{hook.target} is gone; without it, {hook.without}", remedy)


def print_report(found: dict[str, Any]) -> None:
    """A table on stdout, failures with their remedy."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1))
    for finding in found["findings"]:
        mark = Text("ok", style="green") if finding["ok"] else Text("FAIL", style="bold red")
        table.add_row(mark, finding["name"], Text(finding["detail"]))
        if finding["remedy"]:
            table.add_row("", "", Text(f"→ {finding['remedy']}", style="yellow"))
    console = Console(file=sys.stdout)
    console.print(table)
    verdict = "Ready to serve." if found["ok"] else "Not ready: see the arrows above."
    console.print(verdict, style="bold green" if found["ok"] else "bold red")
