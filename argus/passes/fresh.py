"""Declare new memory objects under names that the kernel does not use yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from argus.ir.expr import REDUCTIONS, Const, coords
from argus.ir.nodes import Access, AssertTags, For, Fragment, Kernel, Share, Shared, Spec, Stage, Stmt, Tag
from argus.ir.types import DType
from argus.ir.visit import map_accesses, rewrite_body, walk
from argus.layout import AnyLayout, FragmentLayout


@dataclass
class Fresh:
    """The objects that one pass adds to `kernel`. New names are derived from the object that they replace."""

    kernel: Kernel
    shared: list[Shared] = field(default_factory=list)
    fragments: list[Fragment] = field(default_factory=list)

    def __post_init__(self) -> None:
        kernel = self.kernel
        self._names = {p.name for p in kernel.params} | set(kernel.sizes)
        self._names |= {s.name for s in kernel.shared} | {f.name for f in kernel.fragments}
        self._names |= {b.name for b in kernel.barriers}
        self._names |= {name for s in walk(kernel.body) if isinstance(s, For) for name in s.counters}

    def name(self, base: str) -> str:
        """Return `base`, or `base` with the first free number."""
        candidate, number = base, 0
        while candidate in self._names:
            number += 1
            candidate = f"{base}{number}"
        self._names.add(candidate)
        return candidate

    def fragment(self, base: str, dtype: DType, shape: tuple[int, ...], layout: FragmentLayout | None = None) -> str:
        """Declare a register tile and return its name."""
        name = self.name(base)
        self.fragments.append(Fragment(name, dtype, shape, layout))
        return name

    def tile(self, base: str, dtype: DType, shape: tuple[int, ...], layout: AnyLayout | None = None) -> str:
        """Declare a shared tile and return its name."""
        name = self.name(base)
        self.shared.append(Shared(name, dtype, shape, layout))
        return name

    def finish(self, body: tuple[Stmt, ...]) -> Kernel:
        """Return the kernel with `body` and the new objects."""
        return replace(
            self.kernel,
            body=body,
            shared=(*self.kernel.shared, *self.shared),
            fragments=(*self.kernel.fragments, *self.fragments),
        )


def whole(name: str, rank: int) -> Access:
    """Return the access `name[c0, c1, ...]`."""
    return Access(name, coords(rank))


def identity(op: str, dtype: DType) -> Const:
    """Return the initial value of a reduction by `op`."""
    value = REDUCTIONS[op](dtype)
    return Const(float(value) if dtype.is_float else value, dtype)


def touches(stmt: Stmt) -> set[str]:
    """Return the memory objects that a statement itself uses when it runs. Tags are not included, because they do not
    run."""
    return set() if isinstance(stmt, Tag | AssertTags | Spec) else names(stmt)


def names(stmt: Stmt) -> set[str]:
    """Return the memory objects that a statement itself (not a nested one) names."""
    found: set[str] = {stmt.dst} if isinstance(stmt, Stage | Share) else set()

    def note(access: Access) -> Access:
        found.add(access.obj)
        return access

    map_accesses(stmt, note)
    return found


def renamed(body: tuple[Stmt, ...], copies: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Return the same statements with other register tiles: `names` maps old names to new ones."""

    def access(a: Access) -> Access:
        return replace(a, obj=copies.get(a.obj, a.obj))

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Tag):
            stmt = replace(stmt, obj=copies.get(stmt.obj, stmt.obj))
        return (map_accesses(stmt, access),)

    return rewrite_body(body, change)
