"""Everything that can be wrong with the hand-built GEMM, one edit each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from argus.ir.expr import Const, Expr, Op, op, rewrite
from argus.ir.nodes import (
    Access,
    Copy,
    If,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Stmt,
)
from argus.ir.visit import rewrite_body
from argus.layout import parse
from tests.verify.hopper import BK, BM, gemm

Edit = Callable[[Stmt], "tuple[Stmt, ...] | None"]


def edited(edit: Edit) -> Kernel:
    """The GEMM after `edit`, which must change something."""
    kernel = gemm()
    body = rewrite_body(kernel.body, edit)
    assert body != kernel.body, "the edit changes nothing"
    return replace(kernel, body=body)


def dropped(kind: type, of: Callable[[Stmt], bool] = lambda _: True) -> Kernel:
    """Without the statements of one kind."""
    return edited(lambda s: () if isinstance(s, kind) and of(s) else None)


def _of_ring(name: str) -> Callable[[Stmt], bool]:
    return lambda s: getattr(s, "barrier", "") == name


def _parity(name: str) -> Kernel:
    def edit(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, MbarrierWait) and s.barrier == name:
            return (replace(s, parity=op("sub", Const(1), s.parity)),)
        return None

    return edited(edit)


def _expected(change: int) -> Kernel:
    return edited(lambda s: (replace(s, bytes=s.bytes + change),) if isinstance(s, MbarrierExpect) else None)


def _pending(count: int, now: int) -> Kernel:
    return edited(lambda s: (replace(s, pending=now),) if isinstance(s, MmaWait) and s.pending == count else None)


def _shifted(index: Expr) -> Expr:
    """The next slot of the ring."""
    assert isinstance(index, Op) and index.op == "mod"
    return op("mod", op("add", index.args[0], Const(1)), index.args[1])


def _stage_of_product() -> Kernel:
    def edit(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, Mma):
            return (replace(s, a=Access(s.a.obj, (_shifted(s.a.index[0]), *s.a.index[1:]))),)
        return None

    return edited(edit)


def _stage_of_copy() -> Kernel:
    def edit(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, Copy) and s.signal is not None and s.dst.obj == "at":
            return (replace(s, dst=Access("at", (_shifted(s.dst.index[0]), *s.dst.index[1:]))),)
        return None

    return edited(edit)


def _released_slot() -> Kernel:
    return edited(lambda s: (replace(s, index=_shifted(s.index)),) if isinstance(s, MbarrierArrive) else None)


def _early_release() -> Kernel:
    """The arrival stands before the wait for the product."""

    def edit(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, MmaCommit):
            release = next(x for x in _all(gemm()) if isinstance(x, If))
            return (s, release)
        return () if isinstance(s, If) else None

    return edited(edit)


def _all(kernel: Kernel) -> list[Stmt]:
    from argus.ir.visit import walk

    return list(walk(kernel.body))


def _arrivals(name: str, count: int) -> Kernel:
    kernel = gemm()
    changed = tuple(replace(b, arrivals=count) if b.name == name else b for b in kernel.barriers)
    return replace(kernel, barriers=changed)


def _fewer_barriers() -> Kernel:
    kernel = gemm()
    return replace(kernel, barriers=tuple(replace(b, count=2) for b in kernel.barriers))


def _fewer_buffers() -> Kernel:
    """Two stages of `at` behind a ring of three: the third is out of range."""
    kernel = gemm()
    layout = parse(f"Sw<3,3,3> o 0 o (2,{BM},{BK}):({BM * BK},{BK},1)")
    at = replace(kernel.shared[0], shape=(2, BM, BK), layout=layout)
    return replace(kernel, shared=(at, *kernel.shared[1:]))


def _aliased_buffers() -> Kernel:
    """A ring of three barriers over two buffers."""

    def two(e: Expr) -> Expr | None:
        match e:
            case Op(op="mod", args=(count, Const(value=3))):
                return op("mod", count, Const(2))
            case _:
                return None

    def at(a: Access) -> Access:
        return Access(a.obj, (rewrite(a.index[0], two), *a.index[1:]))

    def edit(s: Stmt) -> tuple[Stmt, ...] | None:
        match s:
            case Copy(signal=signal) if signal is not None:
                return (replace(s, dst=at(s.dst)),)
            case Mma():
                return (replace(s, a=at(s.a), b=at(s.b)),)
            case _:
                return None

    return edited(edit)


def _unguarded() -> Kernel:
    """The first iteration releases a slot that it never took."""
    return edited(lambda s: s.then if isinstance(s, If) else None)


def _without_signal_of_b() -> Kernel:
    """The second copy of every stage never comes."""
    return edited(lambda s: () if isinstance(s, Copy) and s.dst.obj == "bt" else None)


MUTANTS: dict[str, Callable[[], Kernel]] = {
    "consumer does not wait": lambda: dropped(MbarrierWait, _of_ring("full")),
    "producer does not wait": lambda: dropped(MbarrierWait, _of_ring("empty")),
    "wrong parity of full": lambda: _parity("full"),
    "wrong parity of empty": lambda: _parity("empty"),
    "wrong stage read": _stage_of_product,
    "wrong stage filled": _stage_of_copy,
    "wrong slot released": _released_slot,
    "too many bytes expected": lambda: _expected(16),
    "too few bytes expected": lambda: _expected(-16),
    "bytes of one copy expected": lambda: _expected(-16384),
    "a copy is missing": _without_signal_of_b,
    "no expectation": lambda: dropped(MbarrierExpect),
    "no release": lambda: dropped(MbarrierArrive),
    "release before the product is complete": _early_release,
    "release of what was not taken": _unguarded,
    "no fence": lambda: dropped(MmaFence),
    "no wait before the epilogue": lambda: dropped(MmaWait, lambda s: getattr(s, "pending", 1) == 0),
    "no wait in the loop": lambda: dropped(MmaWait, lambda s: getattr(s, "pending", 0) == 1),
    "wait leaves one too many": lambda: _pending(1, 2),
    "no commit": lambda: dropped(MmaCommit),
    "fewer buffers than the ring": _fewer_buffers,
    "fewer mbarriers than the ring": _fewer_barriers,
    "two buffers behind a ring of three": _aliased_buffers,
    "too many arrivals initialised": lambda: _arrivals("empty", 8),
    "too few arrivals initialised": lambda: _arrivals("empty", 3),
    "one arrival for four warps": lambda: _arrivals("empty", 1),
    "two arrivals for one expectation": lambda: _arrivals("full", 2),
}
"""Mutants by name: every one is wrong at every size with several iterations."""
