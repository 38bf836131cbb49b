"""Objects by number, for functions that Dynamo evaluates once and keeps the result of.

`assume_constant_result` takes arguments that are Python constants; PyTorch before 2.12 takes no others. So what Dynamo
traces passes the number of a kernel or function, and the function that it evaluates looks the object up here.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

_numbers = count()
_objects: WeakValueDictionary[int, Any] = WeakValueDictionary()


def number(of: object) -> int:
    """A number of its own for an object, which `numbered` finds for as long as the object lives."""
    found = next(_numbers)
    _objects[found] = of
    return found


def numbered(number: int) -> Any:
    """The object with a number."""
    return _objects[number]
