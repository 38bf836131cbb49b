"""Where figures came from."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def machine() -> dict[str, str]:
    """Processor, GPU, driver and versions, by name; what is not there is left out."""
    facts = {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    for package in ("torch", "triton", "z3-solver", "islpy", "numpy"):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return facts | _gpu()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _gpu() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": f"{properties.name}, {properties.multi_processor_count} SMs, "
        f"{properties.total_memory / 2**30:.0f} GiB, L2 {properties.L2_cache_size / 2**20:.0f} MiB",
        "cuda": str(torch.version.cuda),
    }
