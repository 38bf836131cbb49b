"""Lower tile IR to explicit IR: policies become buffers, layouts, instructions and waits.

`argus.passes.lower` lists the passes in order.
"""

from argus.passes.lower import PASSES, lower
from argus.passes.report import LoweringError

__all__ = ["PASSES", "LoweringError", "lower"]
