"""Choose constants by measurement: drop some configurations by rules and a model, build and time the others."""

from argus.tuning.autotuner import Autotuner, autotune
from argus.tuning.bench import do_bench
from argus.tuning.config import Config

__all__ = ["Autotuner", "Config", "autotune", "do_bench"]
