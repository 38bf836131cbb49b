"""The host as a target: emitted text of any target runs here, the lanes of a block as fibers of one
thread.
"""

from argus.backend.cpu.module import CpuModule, run_cpu

__all__ = ["CpuModule", "run_cpu"]
