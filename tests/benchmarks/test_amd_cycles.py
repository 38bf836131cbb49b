"""The model of a compute unit's time, on loops whose time is known."""

from __future__ import annotations

import pytest

from benchmarks.amd_cycles import FITTED, Problem, Timed, cycles, resident
from benchmarks.machine_code import Instruction

PRODUCT = ("v_mfma_f32_32x32x8_bf16", "v[0:15], v[40:41], v[42:43], v[0:15]")
OTHER = ("v_mfma_f32_32x32x8_bf16", "v[16:31], v[40:41], v[42:43], v[16:31]")
ADD, EXP = ("v_add_f32_e32", "v50, v51, v52"), ("v_exp_f32_e32", "v50, v51")
READ, LOAD = ("ds_read_b128", "v[60:63], v59"), ("global_load_dwordx4", "v[60:63], v[58:59], off")
MEET = ("s_barrier", "")


def loop(*lines: tuple[str, str]) -> list[Instruction]:
    return [Instruction(8 * n, name, operands) for n, (name, operands) in enumerate(lines)]


@pytest.mark.parametrize(
    ("lines", "waves", "expected"),
    [
        ([PRODUCT, OTHER] * 4, 4, 8 * 32),  # the matrix unit is never idle
        ([PRODUCT, OTHER] * 4, 8, 2 * 8 * 32),  # two waves share it
        ([PRODUCT, *[ADD] * 7] * 4, 4, 4 * 32),  # vector work beside the products
        ([PRODUCT, *[ADD] * 15] * 4, 4, 4 * 64),  # and more of it than they hide
        ([EXP] * 8, 8, 2 * 8 * 16),
        ([READ] * 16, 8, 8 * 16 * 1024 / 128),  # 128 bytes a cycle of all waves
        ([LOAD] * 64, 8, 8 * 64 * 1024 / 64),
    ],
)
def test_what_binds(lines: list[tuple[str, str]], waves: int, expected: float) -> None:
    assert cycles(loop(*lines), waves, 1) == pytest.approx(expected, rel=0.02)


def test_a_result_is_read_when_it_is_complete() -> None:
    """Accumulated onto at once; as an operand of another product only after the last pass."""
    after = ("v_mfma_f32_32x32x8_bf16", "v[16:31], v[0:1], v[42:43], v[16:31]")
    assert cycles(loop(*[PRODUCT] * 4), 4, 1) == pytest.approx(4 * 32)
    assert cycles(loop(PRODUCT, after, PRODUCT, after), 4, 1) == pytest.approx(4 * 32 + 2 * 8)


def test_waits_are_for_the_oldest() -> None:
    """With another load under way, a wait for the one before costs nothing."""
    early = loop(LOAD, ("s_waitcnt", "vmcnt(0)"), *[ADD] * 200)
    late = loop(LOAD, ("s_waitcnt", "vmcnt(1)"), *[ADD] * 200)
    assert cycles(early, 4, 1) > 500 + 800 and cycles(late, 4, 1) < 900


def test_waves_of_other_blocks_hide_what_barriers_show() -> None:
    """All waves of a block multiply and then all add; while those of one block add, those of another multiply."""
    body = loop(*[PRODUCT, OTHER] * 8, ("v_add_f32_e32", "v50, v0, v16"), *[ADD] * 128, MEET)
    assert cycles(body, 4, 2) < 0.9 * 2 * cycles(body, 4, 1)


def test_blocks_of_a_compute_unit() -> None:
    assert resident(4, 128, 32768) == 2
    assert resident(8, 200, 65536) == 1
    assert resident(4, 512, 100) == 1


def test_whole_problems() -> None:
    """305 programs take two rounds of 304 compute units; the clock of a fit gives back what was published."""
    one = Timed(1000.0, 1, 1e6)
    seconds = [one.seconds(Problem("", "", n, n * 1e8, 0.0), 1e9) for n in (304, 305)]
    assert seconds[1] == pytest.approx(2 * seconds[0])
    assert one.seconds(FITTED, one.clock(FITTED)) == pytest.approx(FITTED.seconds)
