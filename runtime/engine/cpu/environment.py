"""Make SGLang's CPU engine importable: the stand-in for ``sgl_kernel`` on every path.

Imports neither torch nor SGLang, because it has to run before either.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

STANDIN = Path(__file__).resolve().parent / "standin"
SWITCH = "SGLANG_USE_CPU_ENGINE"


def cpu_engine_on() -> bool:
    """Whether SGLang is told to run on the CPU (``SGLANG_USE_CPU_ENGINE=1``)."""
    return os.environ.get(SWITCH) == "1"


def native_kernels() -> Path | None:
    """The CPU build of ``sgl_kernel``, if one is installed: it has ``common_ops`` at its root.

    The PyPI wheel keeps its operations in one folder per CUDA architecture.
    """
    paths = [p for p in sys.path if Path(p or ".").resolve() != STANDIN]
    spec = importlib.machinery.PathFinder.find_spec("sgl_kernel", paths)
    if spec is None or not spec.submodule_search_locations:
        return None
    found = next(Path(spec.submodule_search_locations[0]).glob("common_ops*.so"), None)
    return found


def standin_active() -> bool:
    """Whether this process takes ``sgl_kernel`` from the stand-in."""
    return str(STANDIN) in sys.path


def install_standin() -> bool:
    """Put the stand-in first, here and in every process started from here.

    Does nothing, and returns ``False``, unless the CPU engine is on and has no native
    operations.
    """
    if not cpu_engine_on() or native_kernels() is not None:
        return False
    if not standin_active():
        sys.path.insert(0, str(STANDIN))
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(STANDIN) not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STANDIN), *inherited])
    return True


def quiet_threads() -> None:
    """Let idle OpenMP threads sleep: spinning ones take the core from the scheduler."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


def keep_memory() -> None:
    """Let glibc keep what a step frees: a verify step of 32 rows writes 20 MB of logits.

    By default such a block may go back to the system and is mapped anew, page by page, in
    the next step, which made the head's product take up to twice as long on a Zen 3. Larger
    blocks, weights among them, go back as ever: glibc before 2.35 takes no threshold above
    32 MiB. Read when a process starts, so this reaches the scheduler, not who calls it.
    """
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(256 << 20))
