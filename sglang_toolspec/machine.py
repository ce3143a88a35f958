"""What a figure was measured on, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Processor, cores, memory, system, and a GPU's name where there is one."""
    parts = [_processor(), f"{os.cpu_count()} cores", _memory(), f"{platform.system()} {platform.machine()}"]
    import torch

    if torch.cuda.is_available():
        parts.insert(0, torch.cuda.get_device_name(0))
    else:
        parts.append(f"{torch.backends.cpu.get_cpu_capability()}, no GPU")
    return ", ".join(part for part in parts if part)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _memory() -> str:
    info = Path("/proc/meminfo")
    if not info.is_file():
        return ""
    kib = int(info.read_text().split("MemTotal:", 1)[1].split()[0])
    return f"{kib / 2**20:.0f} GiB"
