"""Loads by a descriptor: lanes out of range get zeros, in registers and in LDS; a cut access is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.machine.gfx942 import access
from tests.machine.gfx942.code import Instruction
from tests.machine.gfx942.memory import Lds, Memory
from tests.machine.gfx942.operands import parse
from tests.machine.gfx942.wave import M0, Hazard, Wave

DATA = np.arange(64, dtype=np.uint32)


def executed(name: str, operands: str, records: int) -> Wave:
    """A wave after a load whose lane l passes the offset 16 l, from a descriptor of so many bytes of the data."""
    memory = Memory([(DATA.view(np.uint8), False)])
    wave = Wave(0, 0, 0, memory, Lds(1024), np.zeros((512, 64), np.uint32), [0] * 128, np.zeros((64, 0), np.uint8))
    wave.v[1] = 16 * np.arange(64)
    wave.v[4:8] = 99
    wave.set_pair(0, memory.addresses[0])
    wave.set_scalar(2, records)
    wave.set_scalar(M0, 256)
    step = access.step(Instruction(0, name, operands, (0, 0)), parse(operands))
    assert step is not None
    step(wave)
    return wave


def test_lanes_out_of_range_get_zeros() -> None:
    wave = executed("buffer_load_dwordx4", "v[4:7], v1, s[0:3], 0 offen", 48)
    wave.wait("vmcnt", 0)
    np.testing.assert_array_equal(wave.v[4:8, :3].T, DATA[:12].reshape(3, 4))
    assert not wave.v[4:8, 3:].any()


def test_zeros_are_written_to_lds() -> None:
    wave = executed("buffer_load_dword", "v1, s[0:3], 0 offen lds", 36)
    words = wave.lds.bytes.view(np.uint32)[64:128]
    np.testing.assert_array_equal(words[:3], DATA[[0, 4, 8]])
    assert not words[3:].any()


def test_an_access_that_the_end_cuts_is_refused() -> None:
    with pytest.raises(Hazard, match="an access of 16 bytes ends behind a buffer of 40"):
        executed("buffer_load_dwordx4", "v[4:7], v1, s[0:3], 0 offen", 40)
