"""Classes of edits."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The kind of change that an edit makes. The value is its name in reports."""

    DROP = "drop synchronisation"
    MOVE = "move synchronisation"
    COUNT = "counts, parities, stages"
    SCOPE = "scopes"
    LAYOUT = "layouts and places"
    INDEX = "indices"
    MASK = "masks and conditions"
    LOOP = "loops"
    ORDER = "order of statements"
    STATEMENT = "drop statements"
    VALUE = "initial and other values"
    REDUCTION = "reductions"
    REQUIRES = "preconditions"
    GRID = "grid"
    ASSERTION = "assertions"
