"""sglang-toolspec: draft tool calls from their schemas inside SGLang, without training.

Importing it before ``sglang`` makes SGLang's CPU engine importable where
``SGLANG_USE_CPU_ENGINE=1`` and the native CPU kernels are absent; otherwise it does nothing.
"""

from sglang_toolspec.runtime.engine.cpu.environment import install_standin

__version__ = "0.1.0"
SGLANG_VERSION = "0.5.23"
"""The one SGLang release this version is written for and tested with."""

install_standin()
