"""What a legal kernel is at each stage. A finding here is a mistake of the frontend or a pass, not of an author.

A kernel is checked in one walk (`check.py`): first what it declares, then each statement, once. What holds for every
statement follows from its descriptor: its expressions are typed and name what is in scope, its accesses have the rank
and the space that the fields declare. What else holds for one kind of statement is its row of `RULES`.
"""

from argus.ir.wellformed.check import check_explicit, check_tile

__all__ = ["check_explicit", "check_tile"]
