"""Choosing constants by measurement: configurations are dropped by rule and by model, built side by side, and timed."""

from argus.tuning.autotuner import Autotuner, autotune
from argus.tuning.bench import do_bench
from argus.tuning.config import Config

__all__ = ["Autotuner", "Config", "autotune", "do_bench"]
