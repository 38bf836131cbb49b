"""The iteration space of a group of operators: atoms, from which the dimensions of all its values are composed.

A dimension is a tuple of atoms, most significant first. A view of [B * S, D] as [B, S, D] cuts an atom in two, a
permutation changes the order of dimensions, and a dimension of one element has no atoms. Views between the operators of
a group therefore cost nothing, and a kernel has no statements for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from argus.graph.terms import Extent, product

Dim = tuple[int, ...]
Dims = tuple[Dim, ...]


class Mismatch(Exception):
    """Dimensions do not have the same iterations. The text gives the reason."""


def quotient(a: Extent, b: Extent) -> Extent | None:
    """Return a / b if the quotient is an integer larger than 1 for all sizes, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 and a > b else None
    ratio = a / b
    return ratio if getattr(ratio, "is_integer", False) and ratio != 1 else None


class Space:
    """Atoms with their sizes, and the dimensions of values, by any key."""

    def __init__(self) -> None:
        self._sizes: list[Extent] = []
        # for each atom: the atoms into which it was cut, or the atom with which it was unified
        self._now: dict[int, Dim] = {}
        self._values: dict[Hashable, Dims] = {}

    def copy(self) -> Space:
        other = Space()
        other._sizes, other._now, other._values = list(self._sizes), dict(self._now), dict(self._values)
        return other

    def absorb(self, other: Space) -> None:
        """Add the atoms and values of another space under new numbers. Values with equal keys are unified. Raises
        Mismatch."""
        shift = len(self._sizes)
        self._sizes += other._sizes
        self._now |= {a + shift: tuple(b + shift for b in into) for a, into in other._now.items()}
        shared = []
        for key, dims in other._values.items():
            moved = tuple(tuple(a + shift for a in dim) for dim in dims)
            if key in self._values:
                shared += list(zip(self._values[key], moved, strict=True))
            else:
                self._values[key] = moved
        for a, b in shared:
            self.unify(a, b)

    def __len__(self) -> int:
        return len(self._sizes)

    def size(self, atom: int) -> Extent:
        return self._sizes[atom]

    def extent(self, dim: Dim) -> Extent:
        return product([self._sizes[a] for a in dim])

    def fresh(self, shape: Sequence[Extent]) -> Dims:
        """Return dimensions of new atoms."""
        return tuple(() if size == 1 else (self._atom(size),) for size in shape)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __getitem__(self, key: Hashable) -> Dims:
        return self.resolved(self._values[key])

    def __setitem__(self, key: Hashable, dims: Dims) -> None:
        """Set the dimensions of a value. Raises Mismatch if two of them have an atom in common."""
        self._values[key] = dims
        self._insist_on(dims)

    def items(self) -> Iterator[tuple[Hashable, Dims]]:
        """Yield the values with their dimensions."""
        return ((key, self[key]) for key in tuple(self._values))

    def at_sizes(self, sizes: Mapping[int, int], names: Mapping[Hashable, Hashable]) -> Space:
        """Return a space of the same structure whose atoms have other sizes, with the values in `names` under new keys.
        """
        other = Space()
        other._sizes, other._now = [sizes.get(atom, 1) for atom in range(len(self))], dict(self._now)
        other._values = {names[key]: dims for key, dims in self._values.items() if key in names}
        return other

    def resolved(self, dims: Dims) -> Dims:
        """Return the dimensions in terms of the current atoms."""
        return tuple(self.atoms(dim) for dim in dims)

    def atoms(self, dim: Sequence[int]) -> Dim:
        """Return a dimension as the atoms into which it is currently cut."""
        found: list[int] = []
        for atom in dim:
            found += self.atoms(self._now[atom]) if atom in self._now else (atom,)
        return tuple(found)

    def unify(self, a: Dim, b: Dim) -> None:
        """Unify two dimensions, so that they have the same iterations. Raises Mismatch."""
        left, right = list(self.atoms(a)), list(self.atoms(b))
        while left and right:
            x, y = left.pop(), right.pop()
            if x == y:
                continue
            if self._sizes[x] == self._sizes[y]:
                self._now[y] = (x,)
            elif (more := quotient(self._sizes[x], self._sizes[y])) is not None:
                left.append(self._cut(x, more, y))
            elif (more := quotient(self._sizes[y], self._sizes[x])) is not None:
                right.append(self._cut(y, more, x))
            else:
                raise Mismatch(f"sizes {self._sizes[x]} and {self._sizes[y]} do not fit one another")
            left, right = list(self.atoms(left)), list(self.atoms(right))
        if left or right:
            raise Mismatch("dimensions of different sizes")
        self._insist()

    def regrouped(self, dims: Dims, shape: Sequence[Extent]) -> Dims:
        """Return the dimensions of a reshaped value, whose elements keep their order. Atoms are cut where a size of the
        new shape requires it.

        Raises Mismatch where a size cuts an atom unevenly.
        """
        rest = list(self.atoms([a for dim in dims for a in dim]))
        result: list[Dim] = []
        for size in reversed(shape):
            taken: list[int] = []
            missing = size
            while missing != 1:
                if not rest:
                    raise Mismatch("a view of other sizes")
                atom = rest.pop()
                if self._sizes[atom] == missing:
                    taken.insert(0, atom)
                    missing = 1
                elif (more := quotient(missing, self._sizes[atom])) is not None:
                    taken.insert(0, atom)
                    missing = more
                elif (more := quotient(self._sizes[atom], missing)) is not None:
                    low = self._atom(missing)
                    rest.append(self._cut(atom, more, low))
                    taken.insert(0, low)
                    missing = 1
                else:
                    raise Mismatch("a view that cuts a dimension unevenly")
            result.insert(0, tuple(taken))
        if rest:
            raise Mismatch("a view of other sizes")
        return tuple(result)

    def _atom(self, size: Extent) -> int:
        self._sizes.append(size)
        return len(self._sizes) - 1

    def _cut(self, atom: int, more: Extent, low: int) -> int:
        """Cut an atom into a new one of `more` values and the atom `low`. Return the new atom."""
        high = self._atom(more)
        self._now[atom] = (high, low)
        return high

    def _insist(self) -> None:
        for dims in self._values.values():
            self._insist_on(dims)

    def _insist_on(self, dims: Dims) -> None:
        atoms = self.atoms([a for dim in dims for a in dim])
        if len(set(atoms)) < len(atoms):
            raise Mismatch("one tensor would be read along its diagonal")
