"""The vendors' rules for single executions of statements: a second opinion on refutations by machine rules.

The verifier and the simulator share the instruction tables, the layout algebra and the evaluator of expressions. This
folder uses none of them: it has its own tables (`documents.py`), numbers (`numbers.py`), places (`places.py`) and rules
(`rules.py`, `budgets.py`), written from the documents.
"""

from argus.hardware.budgets import breaks
from argus.hardware.rules import Instance, broken

__all__ = ["Instance", "breaks", "broken"]
