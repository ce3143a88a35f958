"""What ``sglang-toolspec serve`` sets in the environment before SGLang starts."""

from __future__ import annotations

import os
import sys

import pytest

from sglang_toolspec import serve

MALLOC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in MALLOC})
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_servers_on_a_cpu_keep_the_memory_that_a_step_frees():
    serve.prepare_environment("cpu")
    assert all(int(os.environ[name]) > 32 * 151_936 * 4 for name in MALLOC)


def test_older_glibc_takes_the_threshold():
    serve.prepare_environment("cpu")
    assert int(os.environ[MALLOC[0]]) <= 32 << 20  # HEAP_MAX_SIZE / 2 before 2.35


def test_what_the_user_set_stays():
    os.environ[MALLOC[0]] = "131072"
    serve.prepare_environment("cpu")
    assert os.environ[MALLOC[0]] == "131072"


def test_servers_on_a_gpu_are_left_alone():
    serve.prepare_environment("gpu")
    assert not any(name in os.environ for name in MALLOC)
