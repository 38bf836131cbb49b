"""The origin of figures: the machine, and the state of Argus's sources."""

from __future__ import annotations

import os
import platform
import subprocess
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import argus

_DIGITS = 12
_CODE = (".py", ".h", ".lark", ".json")
_LINKED = ("errors", "examples")


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


def sources() -> dict[str, str]:
    """Identify the measured code: "sources" is the digest of the package's code, wherever it is installed. A checkout
    also has "commit", which ends in "-dirty" if files differ from the commit."""
    package = Path(argus.__file__).parent
    found = {"sources": digest(package)[:_DIGITS]}
    if not (package.parent / ".git").exists():  # else the checkout would be that of whoever installed the package
        return found
    command = ["git", "-C", str(package), "describe", "--always", "--dirty", f"--abbrev={_DIGITS}", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return found
    return found | {"commit": done.stdout.strip()}


def digest(package: Path) -> str:
    """SHA-256 over names and contents of all code below a folder; without pages and examples, which may be links."""
    found = sha256()
    for file in sorted(f for f in package.rglob("*") if f.suffix in _CODE and f.is_file()):
        name = file.relative_to(package)
        if name.parts[0] not in _LINKED:
            found.update(f"{name.as_posix()}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


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
