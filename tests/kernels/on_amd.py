"""Named calls of the library's functions as for tensors on an MI300X; prints the kernels that each loads, as JSON.

A program of its own, because what it prepares must not stay in the process: tensors of the host stand for tensors of
the device, and nothing is launched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from argus import kernels
from argus.backend.launch.plan import Launcher
from argus.diagnostic import ArgusError
from argus.ir.target import TARGETS
from argus.runtime import device, planner
from argus.runtime.executable import Executable

DEVICE = TARGETS["gfx942"]


class Loaded:
    """A kernel on a device that refuses what an MI300X would, and runs nothing."""

    def __init__(self, built: Executable) -> None:
        resources = built.resources
        assert built.target == "gfx942" and built.binary[:4] == b"\x7fELF" and resources is not None
        assert resources["spill_bytes"] == 0
        self.shared = resources["shared_bytes"]

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        return 1

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        assert 0 not in grid and threads <= DEVICE.max_threads
        assert shared_bytes == self.shared <= DEVICE.shared_bytes, "what is checked is what the code object declares"
        return Launcher(lambda: 0, lambda _arguments, _stream: (), lambda: 0, lambda _status, _bound: None)


def rows(columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(4, columns, dtype=dtype)


def ones(columns: int) -> torch.Tensor:
    return torch.ones(columns, dtype=torch.bfloat16)


def add_layernorm(columns: int) -> None:
    kernels.add_layernorm(rows(columns), rows(columns), ones(columns), ones(columns))


def attention(size: int) -> None:
    kernels.attention(*(torch.zeros(1, 2, 96, size, dtype=torch.bfloat16) for _ in range(3)))


def latent(queries: int) -> None:
    cache = torch.zeros(4, 64, 576, dtype=torch.bfloat16)
    table, lens = torch.zeros(2, 2, dtype=torch.int32), torch.full((2,), 70, dtype=torch.int32)
    q = torch.zeros(2, 16, queries, 576, dtype=torch.bfloat16)
    kernels.attention_decode_latent(q, cache, table, lens, scale=0.1)


def squared(dtype: torch.dtype, **more: bool) -> None:
    x = rows(64).to(dtype)
    assert kernels.matmul(x, x.T, **more).shape == (4, 4)


CALLS: dict[str, Callable[[], Any]] = {
    "softmax 16384 float32": lambda: kernels.softmax(rows(16384, torch.float32)),
    "softmax 24576": lambda: kernels.softmax(rows(24576)),
    "softmax 24577": lambda: kernels.softmax(rows(24577)),
    "rmsnorm 24576": lambda: kernels.rmsnorm(rows(24576), ones(24576)),
    "rmsnorm 32768": lambda: kernels.rmsnorm(rows(32768), ones(32768)),
    "add_layernorm 12288": lambda: add_layernorm(12288),
    "add_layernorm 12289": lambda: add_layernorm(12289),
    "attention 64": lambda: attention(64),
    "attention 128": lambda: attention(128),
    "latent heads": lambda: latent(1),
    "latent heads, more queries": lambda: latent(3),
    "matmul": lambda: kernels.matmul(rows(64), rows(64).T),
    "matmul of float32": lambda: squared(torch.float32, tf32=False),
    "matmul of tfloat32": lambda: squared(torch.float32),
    "matmul of e4m3fn": lambda: squared(torch.float8_e4m3fn),
    "matmul of e4m3fnuz": lambda: squared(torch.float8_e4m3fnuz),
    "matmul of both": lambda: kernels.matmul(
        rows(64).to(torch.float8_e4m3fnuz), rows(64).to(torch.float8_e4m3fn).T
    ),
}


def main(names: list[str]) -> None:
    """Make each of these calls, and print the entry points that it loads, or the message that it ends with."""
    seen: list[str] = []

    def load(built: Executable, _device: str) -> Loaded:
        seen.append(built.entry)
        return Loaded(built)

    asked = device.target_of
    for name, module in list(sys.modules.items()):
        if name.startswith("argus.") and getattr(module, "target_of", None) is asked:
            vars(module)["target_of"] = lambda _device: "gfx942"
    vars(planner)["load"] = load
    found = {}
    for name in names:
        seen.clear()
        try:
            CALLS[name]()
            found[name] = list(seen)
        except ArgusError as error:
            found[name] = [error.diagnostics[0].message]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
