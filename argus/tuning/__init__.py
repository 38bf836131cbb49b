"""Choose constants by measurement: drop configurations by rules and a model, build the others in parallel, time them."""

from argus.tuning.autotuner import Autotuner, autotune
from argus.tuning.bench import do_bench
from argus.tuning.config import Config

__all__ = ["Autotuner", "Config", "autotune", "do_bench"]
