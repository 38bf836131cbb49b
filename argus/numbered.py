"""A table of objects by number, for functions that Dynamo evaluates once and whose result it keeps.

Before PyTorch 2.12, `assume_constant_result` only takes arguments that are Python constants. The traced code therefore
passes the number of a kernel or function, and the function that Dynamo evaluates looks the object up here.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

_numbers = count()
_objects: WeakValueDictionary[int, Any] = WeakValueDictionary()


def number(of: object) -> int:
    """Return a new number for an object; `numbered` finds the object by it as long as the object lives."""
    found = next(_numbers)
    _objects[found] = of
    return found


def numbered(number: int) -> Any:
    """Return the object with a number."""
    return _objects[number]
