"""Descriptions of machines, beside the peak rates of their data sheets."""

from __future__ import annotations

import pytest

from argus.ir.machine import A100, H200, L40S, MI300X, TF32_BITS, Machine
from argus.ir.target import TARGETS, target_of


@pytest.mark.parametrize(
    ("machine", "bits", "tera"),
    [
        (H200, 16, 1071),  # 989 at the clock of 1.83 GHz that the data sheet assumes
        (A100, 16, 312),
        (L40S, 8, 733),
        (L40S, 16, 366.4),  # 362 at the clock of 2.49 GHz that the data sheet assumes
        (A100, 32, 156),
        (MI300X, 8, 2614.9),
        (MI300X, 16, 1307.4),
        (MI300X, TF32_BITS, 653.7),
        (MI300X, 32, 163.4),
    ],
)
def test_rates_of_matrix_products(machine: Machine, bits: int, tera: float) -> None:
    peak = machine.multiprocessors * machine.matrix_rate(bits) * machine.clock_hz
    assert peak == pytest.approx(tera * 1e12, rel=2e-3)


def test_every_target_but_the_host_has_a_machine_of_its_own() -> None:
    for name, target in TARGETS.items():
        assert name == target.machine.target or target.vendor == "cpu"


@pytest.mark.parametrize("machine", [t.machine for t in TARGETS.values() if t.vendor != "cpu"], ids=lambda m: m.name)
def test_a_block_fits_its_multiprocessor(machine: Machine) -> None:
    assert machine.multiprocessors % machine.dies == 0
    assert machine.block_shared_bytes <= machine.shared_bytes
    assert machine.block_threads <= machine.threads


@pytest.mark.parametrize(
    ("vendor", "device", "name"),
    [
        ("nvidia", "8.0", "sm_80"),
        ("nvidia", "8.x", "sm_80"),  # a device of the generation that no target names: code of the generation runs
        ("nvidia", "8.9", "sm_89"),
        ("nvidia", "9.0", "sm_90a"),
        ("nvidia", "10.0", None),
        ("amd", "gfx942", "gfx942"),
        ("amd", "gfx90a", None),
        ("amd", "9.0", None),
    ],
)
def test_a_device_has_the_target_that_is_nearest(vendor: str, device: str, name: str | None) -> None:
    found = target_of(vendor, device)
    assert (None if found is None else found.name) == name
