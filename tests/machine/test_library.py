"""What launches of the interpreter do with the host's tensors."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.machine import library  # noqa: E402
from tests.machine.gfx942.memory import Memory  # noqa: E402


def test_no_tensor_of_an_argument_is_freed_during_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage is collected during a launch, which then writes what the kernel left: the memory must still be there."""
    numbers, other = np.zeros(4, np.int64), torch.zeros(4)
    alive, address = weakref.ref(numbers), numbers.ctypes.data
    garbage: list[Any] = [torch.from_numpy(numbers)]
    garbage.append(garbage)
    del numbers, garbage
    seen = []

    def launch(_code: Any, _entry: str, _grid: Any, _threads: int, arrays: Any, arguments: Any) -> Memory:
        gc.collect()
        seen.append((alive() is not None, [a.size for a, _ in arrays], [(a.array, a.offset) for a in arguments]))
        return Memory(arrays)

    monkeypatch.setattr(library, "launch", launch)
    kernel = library.Interpreted.__new__(library.Interpreted)
    vars(kernel).update(_code=None, _entry="k", _arguments=[(0, 8, True)])
    values = ctypes.c_uint64(address + 8)
    given = (ctypes.c_void_p * 1)(ctypes.addressof(values))
    assert kernel.prepare((1, 1, 1), 64, 0).start(given) == 0
    assert seen == [(True, [32], [(0, 8)])]
    gc.collect()
    assert alive() is None and not other.any()
