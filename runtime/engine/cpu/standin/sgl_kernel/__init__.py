"""Stand-in for ``sgl_kernel`` where SGLang runs on a CPU without its native CPU build.

SGLang imports this name before plugins load, in every process. The file gives way to
the real package unless ``SGLANG_USE_CPU_ENGINE=1``, so it can never shadow the real
kernels of a GPU machine. The operations live in ``sglang_toolspec/runtime/engine/cpu/kernels.py``,
loaded by path because importing the package from here could import SGLang again.
"""

import importlib.util as _util
import os as _os
import sys as _sys
from pathlib import Path as _Path

__version__ = "0.0.0+toolspec.cpu"


def _real_package():
    here = _Path(__file__).resolve().parents[1]
    _sys.path[:] = [p for p in _sys.path if _Path(p or ".").resolve() != here]
    del _sys.modules[__name__]
    import sgl_kernel

    return sgl_kernel


def _load(name, path):
    spec = _util.spec_from_file_location(name, path)
    module = _util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if _os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
    globals().update(vars(_real_package()))
else:
    kernels = _load("sgl_kernel.kernels", _Path(__file__).resolve().parents[2] / "kernels.py")
    globals().update({k: v for k, v in vars(kernels).items() if k.endswith("_cpu")})
