"""The IR: statements that compute and control, and kernels. Other nodes are in `objects`, `copies`, `policies`,
`ordering` and `tags`.

A kernel is an imperative block program. Every statement is executed by all threads of a block that reach it, over a
*domain*, a box of element coordinates `shape`. Two stages share these nodes:

- *tile* IR, which the frontend makes: `layout`, `instr`, `scope` and the `offset` of a shared tile may be None, and the
  policy statements `Stage`, `Scan` and `For(kind="pipelined")` may occur;
- *explicit* IR, which the passes make: everything is filled in, and no policy statement is left. This stage is proved,
  simulated and emitted.

Registers, shared tiles and global tensors are all mutable memory objects addressed by logical coordinates. Only the
`Access`es and `Elem`s of a statement say which cells it accesses; `argus.ir.access` derives its relations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Union

from argus.diagnostic import Diagnostic
from argus.ir.computing import Accumulate, Map, Mma
from argus.ir.contract import Arranged, Assume, Covers, InRange, Invariant, Precondition, Requires
from argus.ir.copies import COPIES, BulkCopy, Copy, Signal, ThreadCopy
from argus.ir.expr import Expr, ProgramId
from argus.ir.objects import Access, Fragment, Mbarrier, MemoryObject, Scalar, Shared, Tensor
from argus.ir.ordering import (
    Among,
    Asynchronous,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    EndTurns,
    Hint,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
    WaveStep,
)
from argus.ir.policies import Scan, Scanned, Share, Stage
from argus.ir.statement import CONDITION, Statement
from argus.ir.tags import (
    AssertTags,
    DataValue,
    Once,
    Spec,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Tag,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
)
from argus.ir.types import HARDWARE_AXES
from argus.ir.watch import DeviceAssert, DevicePrint, Watch
from argus.source import Span, span_field

__all__ = [
    "COPIES",
    "Access",
    "Accumulate",
    "Among",
    "Arranged",
    "AssertTags",
    "Assume",
    "Asynchronous",
    "Barrier",
    "BarrierArrive",
    "BarrierSync",
    "BeginTurns",
    "BulkCommit",
    "BulkCopy",
    "BulkWait",
    "CommitGroup",
    "Copy",
    "Counter",
    "Covers",
    "DataValue",
    "DeviceAssert",
    "DevicePrint",
    "EndTurns",
    "For",
    "Fragment",
    "Hint",
    "If",
    "InRange",
    "Invariant",
    "Kernel",
    "Map",
    "Mbarrier",
    "MbarrierArrive",
    "MbarrierExpect",
    "MbarrierFence",
    "MbarrierInit",
    "MbarrierWait",
    "MemoryObject",
    "Mma",
    "MmaCommit",
    "MmaFence",
    "MmaWait",
    "Once",
    "Precondition",
    "Programs",
    "ProxyFence",
    "Requires",
    "Role",
    "Roles",
    "Scalar",
    "Scan",
    "Scanned",
    "Share",
    "Shared",
    "Signal",
    "Spec",
    "SpecOp",
    "SpecReduce",
    "SpecSoftmax",
    "SpecTerm",
    "Stage",
    "Stmt",
    "Tag",
    "TagCondition",
    "TagEqual",
    "TagField",
    "TagTerm",
    "TagTuple",
    "Tensor",
    "ThreadCopy",
    "WaitCounts",
    "WaitGroup",
    "Watch",
    "WaveBarrier",
    "WaveStep",
]  # fmt: skip
"""All nodes, including those of other modules of this folder. Users of the IR import them from here."""

# ---------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Role:
    """The program of `num_warps` consecutive warps from `first_warp` on, with a budget of `registers` a thread.

    Inside a role, layouts and `Thread()` count the role's own threads, and `Barrier` joins the role alone. `first_warp`
    is a multiple of 4, and `registers` holds for all of its warpgroups; a role may also lie inside of a warpgroup,
    directly behind another one with as many registers. Warps that belong to no role are idle. A role that issues bulk
    copies or expects bytes has one warp, because slower warps could otherwise miss phases that one thread passes.
    """

    FORM: ClassVar[str] = "role {name} warps {num_warps} from {first_warp}(? registers {registers}) {body}"
    name: str
    first_warp: int
    num_warps: int
    registers: int | None
    body: tuple[Stmt, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Roles(Statement):
    """Roles that run side by side, ordered by mbarriers and named barriers alone. The statement occurs once, last, at
    the top level of a kernel."""

    FORM: ClassVar[str] = "roles {roles}"
    roles: tuple[Role, ...]

    def own_barrier(self, role: Role) -> int:
        """Return the named barrier that a `Barrier` in `role` uses. The roles use the first named barriers, in order;
        barrier 0 belongs to the block."""
        return self.roles.index(role) + 1


@dataclass(frozen=True, slots=True)
class Programs(Statement):
    """Runs `body` once for each program assigned to this block, one after another (a persistent kernel).

    With `turns` above 1, roles take turns: this role runs every program whose number among the block's programs is
    `turn` modulo `turns`. For the other programs, its running counts advance as if the loops of `body` had run.

    Inside, `ProgramId` is the current program's, and every program of the grid is assigned to exactly one block. In a
    persistent kernel, this statement is the whole body of the kernel, or of each role, apart from tags, the statements
    that initialise barriers and arrive at them first, and, after it, waits for the bulk stores of the last programs.
    """

    FORM: ClassVar[str] = "programs(? turn {turn} of {turns}) {body}"
    body: tuple[Stmt, ...]
    turns: int = 1
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Counter:
    """`LoopVar(name)` in a loop: the number of its iterations that the thread began before the current one, in all runs
    of the loop and in all programs, modulo `wrap`. Places in a ring of S buffers are `name % S` and the like, and 2 S
    divides `wrap`."""

    FORM: ClassVar[str] = "counter {name} wrap {wrap}"
    name: str
    wrap: int


@dataclass(frozen=True, slots=True)
class For(Statement):
    """The loop `for var in range(start, stop, step)`. `step` is a positive constant, and the bounds are uniform over
    the block.

    A loop of `kind` "dynamic" is plain. A "pipelined" loop (policy) requests `stages` buffers for each `Stage` inside,
    filled by `producer_warps` additional warps if the target supports them (0: by the computing warps themselves).
    """

    FORM: ClassVar[str] = (
        "for {var} in {start} .. {stop} step {step}(? kind {kind})(? stages {stages})(? producers {producer_warps})"
        "(? {counter}) {body}"
    )
    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    kind: str = "dynamic"
    stages: int = 1
    producer_warps: int = 0
    counter: Counter | None = None

    @property
    def counters(self) -> tuple[str, ...]:
        """The names that the loop binds: its variable, and its running count if it has one."""
        return (self.var,) if self.counter is None else (self.var, self.counter.name)


@dataclass(frozen=True, slots=True)
class If(Statement):
    """Runs `then` or `orelse`. `cond` may read `Thread()`, and the branch is then divergent."""

    FORM: ClassVar[str] = "if {cond} {then}(? else {orelse})"
    cond: Expr = field(metadata=CONDITION)
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


Stmt = Union[
    Copy, Map, Accumulate, Scan, Mma, Barrier, CommitGroup, WaitGroup, Asynchronous, WaveStep, Stage, Share, For, If,
    Roles, Programs, Watch, Tag, AssertTags, Spec,
]  # fmt: skip

# ---------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel after its constexpr parameters are fixed.

    - `grid` holds the number of blocks along each axis as expressions in the sizes, or None if it is not declared.
    - `sizes` are the symbolic extents in order of appearance: each is a `Param(name, int32)` in [0, MAX_EXTENT].
    - Output tensors (those that the kernel writes) overlap no other tensor. This precondition is checked at launch.
    - `target` is "cpu", "sm_80", "sm_90a" or "gfx942" in explicit IR.
    - `group`: `group` rows of the grid run at a time, column by column, so that what they share stays in the cache.
      Rows are axis 0 of a grid of two axes, and axes 0 and 1 of a persistent grid of three axes, where axis 0 counts
      fastest. Program ids are a bijection of the hardware's block ids, so no proof depends on the order.
    - `persistent` (policy): only as many blocks are launched as run at once, and each runs several programs
      (`Programs`).
    - `cluster`: so many blocks run at the same time and reach each other's shared memory. Their programs are
      consecutive along axis 0, beginning at a multiple of `cluster`. The extent of axis 0 is written as a multiple of
      `cluster`. All blocks of a cluster with roles end together; other blocks end with their own threads (see
      `argus.ir.cluster`).
    - `schedule` (policy): with "cooperative", the computing warps share the tile of each program. With "pingpong", for
      persistent kernels whose loop has producer warps, two groups of so many warps take turns, each with its own
      programs. With "rows", each computing warpgroup has its own rows of the tile.
    - `flat`: one axis of the hardware's grid counts all programs, axis 0 of `grid` fastest, and blocks decode their ids
      from it. A grid of more than three axes is flat.
    - `invariants`: rows of outputs that do not depend on the rest of the batch.
    - `covers`: the parts that are written, for outputs that are not written as a whole.
    - `remarks`: messages of passes to the author, for example about policies that they could not carry out.
    """

    name: str
    params: tuple[Tensor | Scalar, ...]
    sizes: tuple[str, ...]
    constexprs: tuple[tuple[str, object], ...]
    grid: tuple[Expr, ...] | None
    num_warps: int
    warp_size: int
    preconditions: tuple[Precondition, ...]
    shared: tuple[Shared, ...]
    fragments: tuple[Fragment, ...]
    body: tuple[Stmt, ...]
    target: str | None = None
    barriers: tuple[Mbarrier, ...] = ()
    group: int = 1
    persistent: bool = False
    cluster: int = 1
    schedule: str = "cooperative"
    flat: bool = False
    invariants: tuple[Invariant, ...] = ()
    covers: tuple[Covers, ...] = ()
    remarks: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)
    span: Span = span_field()
    well_formed: bool = field(default=False, init=False, compare=False, repr=False)
    """Set by `argus.ir.wellformed.check_explicit` when it finds no problem. `dataclasses.replace` does not keep it."""

    def _repr_html_(self) -> str:
        """Return the kernel's text as a notebook shows it."""
        from html import escape

        from argus.ir.text import print_kernel

        return f"<pre>{escape(print_kernel(self))}</pre>"

    @property
    def num_threads(self) -> int:
        """The number of threads in a block."""
        return self.num_warps * self.warp_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def program_ids(self) -> tuple[ProgramId, ...]:
        """The program ids along all axes of the grid, or along three axes if the kernel declares fewer, or none."""
        return tuple(ProgramId(axis) for axis in range(max(HARDWARE_AXES, len(self.grid or ()))))

    def object(self, name: str) -> MemoryObject:
        """Return the memory object called `name`. Raises KeyError if there is none."""
        candidates: tuple[MemoryObject, ...] = (*self.tensors, *self.shared, *self.fragments)
        for candidate in candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
