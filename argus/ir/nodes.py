"""The IR: memory objects, statements, kernels; what only orders is in `ordering`, tags and specifications in `tags`.

A kernel is an imperative block program: every statement is executed by all threads of a block that reach it,
over a *domain*, a box of element coordinates `shape`. Two stages share these nodes:

- *tile* IR, as the frontend makes it: `layout`, `instr`, `scope`, shared `offset` may be None, and the policy
  statements `Stage`, `Scan` and `For(kind="pipelined")` may occur;
- *explicit* IR, as the passes leave it: everything is filled in, no policy statement is left. This is what is
  proved, simulated and emitted.

Registers, shared tiles and global tensors are all mutable memory objects addressed by logical coordinates.
Only the `Access`es and `Elem`s of a statement say which cells it touches; `argus.ir.access` derives its relations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Union

from argus.diagnostic import Diagnostic
from argus.ir.contract import Arranged, Assume, Covers, InRange, Invariant, Precondition, Requires
from argus.ir.expr import Const, Expr, ProgramId
from argus.ir.objects import (
    IN_GLOBAL,
    IN_REGISTERS,
    IN_REGISTERS_OR_GLOBAL,
    IN_REGISTERS_OR_SHARED,
    Access,
    Fragment,
    Mbarrier,
    MemoryObject,
    Scalar,
    Shared,
    Tensor,
)
from argus.ir.ordering import (
    Among,
    Asynchronous,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    CommitGroup,
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
from argus.layout import FragmentLayout
from argus.source import Span, span_field

__all__ = [
    "Access", "Accumulate", "Among", "Arranged", "AssertTags", "Assume", "Asynchronous", "Barrier", "BarrierArrive",
    "BarrierSync", "BulkCommit", "BulkCopy", "BulkWait", "CommitGroup", "Copy", "Counter", "Covers", "DataValue",
    "DeviceAssert", "DevicePrint", "For", "Fragment", "Hint", "If", "InRange", "Invariant", "Kernel", "Map", "Mbarrier",
    "MbarrierArrive", "MbarrierExpect", "MbarrierFence", "MbarrierInit", "MbarrierWait", "MemoryObject", "Mma",
    "MmaCommit", "MmaFence", "MmaWait", "Once", "Precondition", "Programs", "ProxyFence", "Requires", "Role", "Roles",
    "Scalar", "Scan", "Scanned", "Share", "Shared", "Signal", "Spec", "SpecOp", "SpecReduce", "SpecSoftmax", "SpecTerm",
    "Stage", "Stmt", "Tag", "TagCondition", "TagEqual", "TagField", "TagTerm", "TagTuple", "Tensor", "ThreadCopy",
    "WaitCounts", "WaitGroup", "Watch", "WaveBarrier", "WaveStep",
]  # fmt: skip
"""All nodes, those of `ordering` and `tags` too: this is where others import them from."""

# ---------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Signal:
    """Completion on mbarrier `barrier[index]`: the bytes that a bulk copy brings are counted there (complete_tx)."""

    FORM: ClassVar[str] = "signal {barrier}[{index}]"
    barrier: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """`dst[...] = src[...]` for every element of `shape` under `mask`; between any two spaces, same dtype.

    If `mask` is false, a fragment or shared destination gets `other` (None: keeps its old value), and a global
    destination is left alone. `instr` is a row of the instruction table, which says who moves the data (`Mechanism`),
    when the copy is complete (`Order`), and all else that is particular to the instruction.

    Every copy is a `ThreadCopy` or a `BulkCopy`: what only one of these has is absent here.
    """

    dst: Access
    src: Access
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    other: Const | None = None

    @property
    def layout(self) -> FragmentLayout | None:
        """The thread that moves each element; None while it is open, and for copies that no thread carries out."""
        return None

    @property
    def vector(self) -> int:
        """The number of consecutive value digits that move at once."""
        return 1

    @property
    def instr(self) -> str | None:
        """The instruction's name; None if it is still open."""
        return None

    @property
    def signal(self) -> Signal | None:
        """The mbarrier that counts the bytes which the copy brings."""
        return None


@dataclass(frozen=True, slots=True)
class ThreadCopy(Copy):
    """A copy that threads make, each its own elements: by loads and stores, matrix moves, or asynchronous copies.

    `layout` spreads the elements over threads; `vector` consecutive value digits move at once. A destination in memory
    is written by each element's primary holder only. In tile IR `layout` and `instr` may be open.
    """

    FORM: ClassVar[str] = (
        "copy {dst} <- {src} shape {shape}(? if {mask})(? else {other})(? layout {layout})(? via {instr})"
        "(? vector {vector})"
    )
    layout: FragmentLayout | None = None
    instr: str | None = None
    vector: int = 1


@dataclass(frozen=True, slots=True)
class BulkCopy(Copy):
    """A box that one thread of the executing role hands to the copy engine, between a tensor and a shared tile.

    Every index of the tensor is its value at the origin plus the `Coord` of its dimension, or one place for the whole
    box; `mask` is exactly "inside the tensor".

    A load sets `signal`, and `other` is 0 where there is a mask, which is what the copy engine does at the edges; all
    of the box's bytes are counted. A multicast brings the box to this place in every block of the cluster, or of those
    `among` it, and its bytes count on the `signal` of each. `once` is a hint to loads, which changes no value and no
    order: nothing else reads the elements soon, so they are the first to leave the L2 cache.

    A store has no `signal` and no `other`: thread 0 of the role issues it, and it is complete as `BulkWait` says.
    """

    FORM: ClassVar[str] = (
        "copy {dst} <~ {src} shape {shape}(? if {mask})(? else {other}) via {instr}(? {signal})(?once: once)(? {among})"
    )
    instr: str = ""
    signal: Signal | None = None
    once: bool = False
    among: Among | None = None


COPIES: tuple[type[Copy], ...] = (ThreadCopy, BulkCopy)
"""All kinds of copies."""


@dataclass(frozen=True, slots=True)
class Map(Statement):
    """`dst[...] = value` elementwise into a fragment; `value` is over `Coord`s, scalars and fragment `Elem`s.

    All reads of one element precede its write. `scope` "thread": every register read is the thread's own;
    "warp": registers of other lanes of the warp are read (a shuffle; `value` is then a single `Elem`).
    """

    FORM: ClassVar[str] = "map {dst} = {value} shape {shape}(? layout {layout})(? scope {scope})"
    dst: Access = field(metadata=IN_REGISTERS)
    value: Expr
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Accumulate(Statement):
    """`dst[...] = dst[...] op value` over the domain; many elements may meet in one cell (a reduction).

    `op` is a key of `REDUCTIONS`. Into a fragment: `scope` "thread" adds the thread's own registers, "warp"
    adds across the lanes that hold the domain (every lane that holds the cell gets the total), None (tile IR)
    leaves that open. Into global memory it is atomic, at device scope, relaxed, one per primary holder
    (`instr` "red.global"). `mask` false: that element contributes nothing.

    With "tma.reduce.add" and similar instructions, the copy engine accumulates a whole box: `value` is a single element
    of a shared tile, `mask` is exactly "inside the tensor", and there is no `layout`. The statement is issued and
    completes like a "tma.store".
    """

    FORM: ClassVar[str] = (
        "accumulate {dst} {op} {value} shape {shape}(? if {mask})(? layout {layout})(? scope {scope})(? via {instr})"
    )
    dst: Access = field(metadata=IN_REGISTERS_OR_GLOBAL)
    value: Expr
    op: str
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    layout: FragmentLayout | None = None
    scope: str | None = None
    instr: str | None = None


@dataclass(frozen=True, slots=True)
class Scanned:
    """One tile of a scan: `result[c] = combine`, over what the results hold at the element before, and the operands.

    In `combine`, an `Elem` of a result stands for its element before c, and one of an operand for its element at c.
    """

    FORM: ClassVar[str] = "of {operand} to {result} = {combine}"
    operand: Access = field(metadata=IN_REGISTERS)
    result: Access = field(metadata=IN_REGISTERS)
    combine: Expr


@dataclass(frozen=True, slots=True)
class Scan(Statement):
    """Policy: a scan of register tiles along `axis`, of all of them together; the first element is the operand's.

    With `reverse` it runs from the last element to the first. The combination of all results is associative, so parts
    may be combined first: a pass spreads the work over registers, lanes and warps (`argus.passes.scan`).
    """

    FORM: ClassVar[str] = "scan axis {axis}(?reverse: reverse) shape {shape}(? layout {layout})(? {tiles})"
    axis: int
    shape: tuple[int, ...]
    reverse: bool = False
    layout: FragmentLayout | None = None
    tiles: tuple[Scanned, ...] = ()


@dataclass(frozen=True, slots=True)
class Mma(Statement):
    """`d[m, n] += sum over k of a[m, k] * b[n, k]`, domain `shape` = (M, N, K) with Coords (m, n, k).

    `d` is a fragment; `a`, `b` are fragments in explicit IR (tile IR: shared tiles as well). `instr` is a row
    of the instruction table; `warps` = (along M, along N) tells how warps share the tile.

    A row of warpgroup scope (wgmma) reads `b` from a shared tile and `a` from a shared tile or registers, runs
    asynchronously, and is complete at the first `MmaWait` that covers its `MmaCommit` group; `warps` counts warps, four
    to a warpgroup. A shared operand is K-major, or, if its index has the depth before the rows, MN-major.
    """

    FORM: ClassVar[str] = "mma {d} += {a} * {b} shape {shape}(? via {instr})(? warps {warps})"
    d: Access = field(metadata=IN_REGISTERS)
    a: Access = field(metadata=IN_REGISTERS_OR_SHARED)
    b: Access = field(metadata=IN_REGISTERS_OR_SHARED)
    shape: tuple[int, int, int]
    instr: str | None = None
    warps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """The program of `num_warps` consecutive warps from `first_warp` on, with a budget of `registers` a thread.

    Inside, layouts and `Thread()` count the role's own threads, and `Barrier` joins the role alone. `first_warp` is a
    multiple of 4, and `registers` holds for all of its warpgroups; warps that are in no role idle. A role that
    issues bulk copies or expects bytes is one warp: were it more, slower warps could miss phases that one thread runs
    through.
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
    """Roles run side by side, ordered by mbarriers and named barriers alone; they stand at the top level of a kernel,
    once, last."""

    FORM: ClassVar[str] = "roles {roles}"
    roles: tuple[Role, ...]

    def own_barrier(self, role: Role) -> int:
        """Return the named barrier that a `Barrier` in `role` uses. The roles use the first named barriers, in order;
        barrier 0 belongs to the block."""
        return self.roles.index(role) + 1


@dataclass(frozen=True, slots=True)
class Programs(Statement):
    """Runs `body` once for each program that this block was given, one after the other (a persistent kernel).

    With `turns` above 1, roles take turns: this one runs every program whose number among the block's is `turn` modulo
    `turns`, and in the others its running counts go on as if the loops of `body` had run.

    `ProgramId` inside is that program's; every program of the grid is given to exactly one block. If a kernel is
    persistent, this is all that its body, or that of each of its roles, consists of, besides tags, what makes barriers
    ready and arrives there first, and, after it, waits for the bulk stores of the last programs.
    """

    FORM: ClassVar[str] = "programs(? turn {turn} of {turns}) {body}"
    body: tuple[Stmt, ...]
    turns: int = 1
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Stage(Statement):
    """Policy: bring a global tile into the shared tile `dst` and make it visible to the whole block.

    `once`: nothing else reads these elements soon; a hint, of which the copy engine makes use.
    """

    FORM: ClassVar[str] = "stage {dst} <- {src} shape {shape}(? if {mask})(? else {other})(?once: once)"
    dst: str
    src: Access = field(metadata=IN_GLOBAL)
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    other: Const | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Share(Statement):
    """Policy: put a register tile into the shared tile `dst` and make it visible to the whole block, or role."""

    FORM: ClassVar[str] = "share {dst} <- {src} shape {shape}"
    dst: str
    src: Access = field(metadata=IN_REGISTERS)
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """`LoopVar(name)` in a loop: how many of its iterations the thread began before this one, in all of its runs
    and programs, modulo `wrap`. Places in a ring of S buffers are `name % S` and the like, and 2 S divides `wrap`."""

    FORM: ClassVar[str] = "counter {name} wrap {wrap}"
    name: str
    wrap: int


@dataclass(frozen=True, slots=True)
class For(Statement):
    """`for var in range(start, stop, step)`; `step` is a positive constant. Bounds are uniform over the block.

    `kind` "dynamic" is a plain loop; "pipelined" (policy) asks for `stages` buffers per `Stage` inside, filled by
    `producer_warps` further warps where the target can (0: by the computing warps themselves).
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
    """Runs `then` or `orelse`. `cond` may read `Thread()`, and is then divergent."""

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
    """A kernel after constexpr parameters are fixed.

    `grid` holds the number of blocks along each axis as expressions in the sizes, or None if undeclared.
    `sizes` are the symbolic extents, in order of appearance: each `Param(name, int32)` in [0, MAX_EXTENT].
    Output tensors (those written) overlap no other tensor: a precondition, checked at launch.
    `target` is "cpu", "sm_80", "sm_90a", "gfx942" in explicit IR.
    `group`: blocks run in an order that walks `group` rows of the grid at a time, column by column, which keeps what
    they share in the cache. Rows are axis 0 of a grid of two axes; of a persistent grid of three, axes 0 and 1, where 0
    counts fastest. Program ids are a bijection of the hardware's block ids, so nothing that is proved depends on it.
    `persistent` (policy): no more blocks are launched than run at once, and each runs several programs (`Programs`).
    `cluster`: that many blocks, of programs that follow one another along axis 0 from a multiple of `cluster` on, run
    at the same time and reach each other's shared memory. The extent of axis 0 is a multiple of it, written as one.
    All blocks of a cluster of roles end together; others end when their own threads do: see `argus.ir.cluster`.
    `schedule` (policy): the computing warps share the tile of each program ("cooperative"), or, in a persistent kernel
    whose loop has producer warps, two groups of as many warps take turns, with programs of their own ("pingpong"); or
    each computing warpgroup has rows of the tile for itself ("rows").
    `flat`: one axis of the hardware's grid counts all programs, axis 0 of `grid` fastest; blocks decode their ids from
    its index. A grid of more than three axes is flat.
    `invariants`: rows of outputs that do not depend on the rest of the batch.
    `covers`: which parts of outputs are written, for those of which not all is.
    `remarks`: what passes have to tell the author, such as policies that they could not carry out.
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
    """Set by `argus.ir.wellformed.check_explicit` once it found nothing; `dataclasses.replace` does not keep it."""

    def _repr_html_(self) -> str:
        """Return the kernel's text as a notebook shows it."""
        from html import escape

        from argus.ir.text import print_kernel

        return f"<pre>{escape(print_kernel(self))}</pre>"

    @property
    def num_threads(self) -> int:
        """Threads in a block."""
        return self.num_warps * self.warp_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def program_ids(self) -> tuple[ProgramId, ...]:
        """The ids along all axes of the grid; along three if it declares fewer, or none."""
        return tuple(ProgramId(axis) for axis in range(max(HARDWARE_AXES, len(self.grid or ()))))

    def object(self, name: str) -> MemoryObject:
        """Return the memory object called `name`. Raises KeyError if there is none."""
        candidates: tuple[MemoryObject, ...] = (*self.tensors, *self.shared, *self.fragments)
        for candidate in candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
