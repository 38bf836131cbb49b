"""The rules for a legal kernel at each stage. A violation is a mistake of the frontend or a pass, not of an author.

A kernel is checked in one walk (`check.py`): first its declarations, then each statement once. Some rules hold for
every statement and follow from its descriptor: its expressions are typed and use names in scope, and its accesses have
the rank and the space that the fields declare. The further rules of one kind of statement are its row of `RULES`.
"""

from argus.ir.wellformed.check import check_explicit, check_tile

__all__ = ["check_explicit", "check_tile"]
