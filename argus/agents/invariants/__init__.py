"""Invariants for a kernel that has none: tags of its tensors, and assertions that are proved before anyone sees them.

`synthesised` reads the specification and the data flow of a kernel that is right. What it finds says how elements move
in this kernel, so a later edit that moves other ones is caught where it happens.
"""

from argus.agents.invariants.stripped import stripped
from argus.agents.invariants.synthesis import Invariants, synthesised
from argus.agents.invariants.text import Annotated, annotated, annotated_json

__all__ = ["Annotated", "Invariants", "annotated", "annotated_json", "stripped", "synthesised"]
