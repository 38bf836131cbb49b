"""Choose constants by measurement. Rules and a model drop configurations; the others are built in parallel and timed.
"""

from argus.tuning.autotuner import Autotuner, autotune
from argus.tuning.bench import do_bench
from argus.tuning.config import Config

__all__ = ["Autotuner", "Config", "autotune", "do_bench"]
