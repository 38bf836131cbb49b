"""Laws on generated kernels: every verdict occurs, schedules agree without races, replay finds what runs find."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.mutate import arguments
from argus.simulate import replay, simulate
from tests.strategies import branches, kernels, mutations, sizes

pytestmark = pytest.mark.slow

law = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)



def small(kernel: Kernel) -> st.SearchStrategy[dict[str, int]]:
    """Sizes of which all blocks can be run."""
    return sizes(kernel).filter(lambda drawn: prod(drawn.values()) <= 256)


@law
@given(kernels(), st.data())
def test_schedules_agree_unless_a_rule_is_broken(kernel: Kernel, data: st.DataObject) -> None:
    values = data.draw(small(kernel))
    runs = [
        simulate(kernel, arguments(kernel, values), tags=True, schedule=schedule)
        for schedule in ("program", "reverse", "random(1)")
    ]
    properties = [{v.property for v in run.violations} for run in runs]
    assert len({"races" in found for found in properties}) == 1
    if "races" not in properties[0]:
        assert properties[0] == properties[1] == properties[2]
    if not properties[0] & {"races", "initialisation", "convergence"}:
        for name, result in runs[0].tensors.items():
            for other in runs[1:]:
                np.testing.assert_array_equal(result, other.tensors[name])


@law
@given(kernels(), st.data())
def test_replay_of_all_blocks_is_the_run(kernel: Kernel, data: st.DataObject) -> None:
    values = data.draw(small(kernel))
    run = simulate(kernel, arguments(kernel, values), tags=True)
    again = replay(kernel, values, None)
    assert {(v.property, v.code) for v in again} == {(v.property, v.code) for v in run.violations}


@law
@given(kernels(), st.data())
def test_mutations_are_well_formed_and_run(kernel: Kernel, data: st.DataObject) -> None:
    mutation = data.draw(mutations(kernel))
    assert mutation.kernel != kernel and not check_explicit(mutation.kernel)
    assert parse_kernel(print_kernel(mutation.kernel)) == mutation.kernel
    replay(mutation.kernel, data.draw(sizes(mutation.kernel)), None)


class Enough(Exception):
    """Every property has been broken, and kept."""


def test_every_property_is_broken_by_some_kernel_and_kept_by_some() -> None:
    seen: set[str] = set()
    clean = 0

    wanted = {"bounds", "initialisation", "races", "convergence", "coverage", "tags", "progress"}

    @settings(law, max_examples=400, phases=[Phase.generate])
    @given(st.one_of(kernels(), kernels(), branches()), st.data())
    def collect(kernel: Kernel, data: st.DataObject) -> None:
        nonlocal clean
        violations = replay(kernel, data.draw(small(kernel)), None)
        seen.update(v.property for v in violations)
        clean += not violations
        if seen >= wanted and clean > 20:
            raise Enough

    with pytest.raises(Enough):
        collect()
