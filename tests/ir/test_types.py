"""Element types: one object of each."""

from __future__ import annotations

import copy
import pickle

import pytest

from argus.ir.types import DTYPES, DType


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_copies_are_the_same_object(dtype: DType) -> None:
    """The compiler tells types apart by identity, and constants come from other processes, too."""
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy({"OUT": dtype})["OUT"] is dtype
