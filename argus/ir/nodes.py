"""The whole IR on one page: memory objects, statements, kernels.

A kernel is an imperative block program: every statement is executed by all threads of a block that reach it,
over a *domain*, a box of element coordinates `shape`. Two stages share these nodes:

- *tile* IR, as the frontend makes it: `layout`, `instr`, `scope`, shared `offset` may be None, and the policy
  statements `Stage` and `For(kind="pipelined")` may occur;
- *explicit* IR, as the passes leave it: everything is filled in, no policy statement is left. This is what is
  proved, simulated and emitted.

Registers, shared tiles and global tensors are all mutable memory objects addressed by logical coordinates.
Which cells a statement touches is said once, by its `Access`es and `Elem`s; `argus.ir.access` reads it off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from argus.diagnostic import Diagnostic
from argus.ir.expr import Const, Elem, Expr
from argus.ir.types import DType
from argus.layout import AnyLayout, FragmentLayout
from argus.source import NO_SPAN, Span


def _span() -> Span:
    return field(default=NO_SPAN, compare=False, repr=False)


# ---------------------------------------------------------------------------- memory objects


@dataclass(frozen=True, slots=True)
class Tensor:
    """A global tensor parameter. `shape` and `strides` (in elements) are `Param`s or `Const`s.

    `alignment` (bytes, a power of two up to 16) divides the base address, every stride other than 1, and the
    extent of the stride-1 dimension, each times the item size. It is a precondition, checked at launch.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    alignment: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar launch parameter, read as `Param(name)`."""

    name: str
    dtype: DType
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Shared:
    """A tile in the block's shared memory (LDS). `layout` maps logical coordinates to element offsets from
    byte `offset` of the block's shared memory; tiles whose byte ranges overlap alias on purpose."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: AnyLayout | None = None
    offset: int | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile in registers, spread over the block's threads by `layout`. Replicas always hold equal values."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An array of `count` mbarriers in shared memory, 8 bytes each from byte `offset` (PTX ISA, mbarrier).

    Each phase of each of them completes after `arrivals` arrivals and all bytes expected in it. They are used once a
    `MbarrierInit` of theirs is visible: after a `MbarrierFence`, and then what orders threads.
    """

    name: str
    count: int
    arrivals: int
    offset: int | None = None
    span: Span = _span()


MemoryObject = Union[Tensor, Shared, Fragment]


@dataclass(frozen=True, slots=True)
class Access:
    """The cell `obj[index]`, one expression per dimension of `obj`, over the statement's `Coord`s.

    With `block`, of a `Copy` and of a shared tile: that of block number `block` of the cluster (distributed shared
    memory), an expression over the block's own number in the cluster, `ProgramId(0) % cluster`, and constants.
    """

    obj: str
    index: tuple[Expr, ...]
    block: Expr | None = None


# ---------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Signal:
    """Completion on mbarrier `barrier[index]`: the bytes that a bulk copy brings are counted there (complete_tx)."""

    barrier: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Copy:
    """`dst[...] = src[...]` for every element of `shape` under `mask`; between any two spaces, same dtype.

    Where `mask` is false: a fragment or shared destination gets `other` (None: keeps its old value), a global
    destination is left alone. `instr` is a row of the instruction table ("ld.global", "st.global", "ld.shared",
    "st.shared", "ldmatrix", "stmatrix", "cp.async", ...), which fixes the ordering class. `layout` spreads the
    elements over threads; `vector` consecutive value digits move at once. A destination in memory is written
    by each element's primary holder only.

    "tma.load" is issued by one thread of the executing role for the whole box: no `layout`; `signal` is set; every
    source index is its value at the origin plus the `Coord` of its dimension, or one place for the whole box; `mask` is
    exactly "inside the tensor" and `other` 0, which is what the copy engine does at the edges; all of the box's bytes
    are counted. "tma.load.multicast" brings the box to this place in every block of the cluster, and its bytes count on
    the `signal` of each. "tma.store" is the same the other way round, without `signal` and `other`: thread 0 of the
    role issues it, and it is complete as `BulkWait` says.
    """

    dst: Access
    src: Access
    shape: tuple[int, ...]
    mask: Expr | None = None
    other: Const | None = None
    layout: FragmentLayout | None = None
    instr: str | None = None
    vector: int = 1
    signal: Signal | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Map:
    """`dst[...] = value` elementwise into a fragment; `value` is over `Coord`s, scalars and fragment `Elem`s.

    All reads of one element precede its write. `scope` "thread": every register read is the thread's own;
    "warp": registers of other lanes of the warp are read (a shuffle; `value` is then a single `Elem`).
    """

    dst: Access
    value: Expr
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None
    scope: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`dst[...] = dst[...] op value` over the domain; many elements may meet in one cell (a reduction).

    `op` is a key of `REDUCTIONS`. Into a fragment: `scope` "thread" adds the thread's own registers, "warp"
    adds across the lanes that hold the domain (every lane that holds the cell gets the total), None (tile IR)
    leaves that open. Into global memory it is atomic, at device scope, relaxed, one per primary holder
    (`instr` "red.global"). `mask` false: that element contributes nothing.

    "tma.reduce.add" and its kin do so by the copy engine, for a whole box: `value` is a single element of a shared
    tile, `mask` exactly "inside the tensor", there is no `layout`, and it is issued and completes as a "tma.store".
    """

    dst: Access
    value: Expr
    op: str
    shape: tuple[int, ...]
    mask: Expr | None = None
    layout: FragmentLayout | None = None
    scope: str | None = None
    instr: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Mma:
    """`d[m, n] += sum over k of a[m, k] * b[n, k]`, domain `shape` = (M, N, K) with Coords (m, n, k).

    `d` is a fragment; `a`, `b` are fragments in explicit IR (tile IR: shared tiles as well). `instr` is a row
    of the instruction table; `warps` = (along M, along N) tells how warps share the tile.

    A row of warpgroup scope (wgmma) reads `b` from a shared tile and `a` from a shared tile or registers, runs
    asynchronously, and is complete at the first `MmaWait` that covers its `MmaCommit` group; `warps` counts warps, four
    to a warpgroup. A shared operand is K-major, or, if its index has the depth before the rows, MN-major.
    """

    d: Access
    a: Access
    b: Access
    shape: tuple[int, int, int]
    instr: str | None = None
    warps: tuple[int, int] | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block meet; shared and global accesses before it are ordered before those after it.

    In a role its threads alone; with `scope` "cluster", outside of roles, those of all blocks of the cluster, whose
    shared accesses it orders alike (barrier.cluster, .release and .acquire)."""

    span: Span = _span()
    scope: str = "block"


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """Closes the executing thread's current group of asynchronous copies (cp.async.commit_group)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Waits until at most `pending` of the thread's most recent groups are unfinished (cp.async.wait_group)."""

    pending: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MmaFence:
    """Orders register accesses before it with asynchronous products after it (wgmma.fence)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MmaCommit:
    """Closes the warpgroup's current group of asynchronous products (wgmma.commit_group)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MmaWait:
    """Waits until at most `pending` of the most recent groups are unfinished (wgmma.wait_group)."""

    pending: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BulkCommit:
    """Closes the current group of bulk stores of the role's thread 0 (cp.async.bulk.commit_group)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BulkWait:
    """Thread 0 of the role waits until at most `pending` of its most recent groups of bulk stores are unfinished
    (cp.async.bulk.wait_group); with `read`, only until they have read their sources (`.read`). Others pass by.

    A block's shared memory is there until it ends: before that, all of its bulk stores have to be waited for.
    """

    pending: int
    read: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """Orders ordinary accesses to shared memory that this thread made, or was ordered after, with asynchronous ones
    that it makes, or that are ordered after it (fence.proxy.async)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class WaitCounts:
    """Waits until at most `vm` of the wave's most recent direct-to-LDS loads are unfinished, and with `lgkm` 0 until
    all of its accesses to shared memory are done (s_waitcnt vmcnt(vm) lgkmcnt(lgkm)); None leaves a counter alone.

    A counter counts instructions, of which one copy has `argus.ir.waves.loads_to_lds`. The compiler chooses
    how many instructions other accesses become, so `lgkm` above 0 orders nothing that a proof could use.
    """

    vm: int | None = None
    lgkm: int | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class WaveBarrier:
    """All waves of the block meet (s_barrier); unlike `Barrier` it waits for no access: for the others it orders what a
    wave's last `WaitCounts` with `lgkm` 0 found done."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class WavePriority:
    """Sets the wave's priority, 0 to 3 (s_setprio): a hint."""

    level: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SchedGroup:
    """Asks the compiler to put `size` instructions of the kinds in `mask` here, in turns with the other groups of the
    same `sync` number (LLVM AMDGPU, llvm.amdgcn.sched.group.barrier): a hint."""

    mask: int
    size: int
    sync: int = 0
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MbarrierInit:
    """Thread 0 of the block, or of the role, initialises all mbarriers of the array `barrier` (mbarrier.init)."""

    barrier: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MbarrierFence:
    """Makes what thread 0 of the block, or of the role, initialised before visible to all that is ordered after this,
    copy engine included (fence.mbarrier_init, fence.proxy.async)."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MbarrierExpect:
    """One lane of the role's warp arrives on `barrier[index]` and announces `bytes` (mbarrier.arrive.expect_tx), after
    all lanes of the warp reached this."""

    barrier: str
    index: Expr
    bytes: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MbarrierArrive:
    """One lane of each warp of the role arrives on `barrier[index]`, after all lanes of the warp reached this.

    `scope` "block": on the block's own; "cluster": on that of every block of the cluster. To other blocks that tells
    that phases and asynchronous accesses are over; it makes no ordinary access visible there.
    """

    barrier: str
    index: Expr
    scope: str = "block"
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MbarrierWait:
    """Every thread of the role waits until the phase of `barrier[index]` with parity `parity` has completed.

    As mbarrier.try_wait.parity in a loop: with c phases completed so far it returns when c % 2 != parity % 2;
    so parity 1 passes at once on a fresh barrier.
    """

    barrier: str
    index: Expr
    parity: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BarrierSync:
    """All threads of the role arrive at named barrier `number` of the block and wait until `count` threads have, in
    this phase of it: those of every role that arrives there (bar.sync). Accesses before any of these arrivals are
    ordered before what follows the wait. Then the next phase begins, for the same threads."""

    number: int
    count: int
    span: Span = _span()

    @property
    def barrier(self) -> str:
        """The barrier's name, which is none of an mbarrier's."""
        return f"barrier {self.number}"


@dataclass(frozen=True, slots=True)
class BarrierArrive:
    """All threads of the role arrive at named barrier `number`, as in `BarrierSync`, and go on (bar.arrive)."""

    number: int
    count: int
    span: Span = _span()

    @property
    def barrier(self) -> str:
        """The barrier's name, which is none of an mbarrier's."""
        return f"barrier {self.number}"


@dataclass(frozen=True, slots=True)
class Role:
    """The program of `num_warps` consecutive warps from `first_warp` on, with a budget of `registers` a thread.

    Inside, layouts and `Thread()` count the role's own threads, and `Barrier` joins the role alone. `first_warp` is a
    multiple of 4, and `registers` holds for all of its warpgroups; warps that are in no role idle. A role that
    issues bulk copies or expects bytes is one warp: were it more, slower warps could miss phases that one thread runs
    through.
    """

    name: str
    first_warp: int
    num_warps: int
    registers: int | None
    body: tuple[Stmt, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles run side by side, ordered by mbarriers and named barriers alone; they stand at the top level of a kernel,
    once, last."""

    roles: tuple[Role, ...]
    span: Span = _span()

    def own_barrier(self, role: Role) -> int:
        """The named barrier that `Barrier` in `role` is: roles have the first ones, in order; 0 is the block's."""
        return self.roles.index(role) + 1


@dataclass(frozen=True, slots=True)
class Programs:
    """Runs `body` once for each program that this block was given, one after the other (a persistent kernel).

    With `turns` above 1, roles take turns: this one runs every program whose number among the block's is `turn` modulo
    `turns`, and in the others its running counts go on as if the loops of `body` had run.

    `ProgramId` inside is that program's; every program of the grid is given to exactly one block. If a kernel is
    persistent, this is all that its body, or that of each of its roles, consists of, besides tags, what makes barriers
    ready and arrives there first, and, after it, waits for the bulk stores of the last programs.
    """

    body: tuple[Stmt, ...]
    turns: int = 1
    turn: int = 0
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Stage:
    """Policy: bring a global tile into the shared tile `dst` and make it visible to the whole block."""

    dst: str
    src: Access
    shape: tuple[int, ...]
    mask: Expr | None = None
    other: Const | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Counter:
    """`LoopVar(name)` in a loop: how many of its iterations the thread began before this one, in all of its runs
    and programs, modulo `wrap`. Places in a ring of S buffers are `name % S` and the like, and 2 S divides `wrap`."""

    name: str
    wrap: int


@dataclass(frozen=True, slots=True)
class For:
    """`for var in range(start, stop, step)`; `step` is a positive constant. Bounds are uniform over the block.

    `kind` "dynamic" is a plain loop; "pipelined" (policy) asks for `stages` buffers per `Stage` inside, filled by
    `producer_warps` further warps where the target can (0: by the computing warps themselves).
    """

    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    kind: str = "dynamic"
    stages: int = 1
    producer_warps: int = 0
    counter: Counter | None = None
    span: Span = _span()

    @property
    def counters(self) -> tuple[str, ...]:
        """The names that the loop binds: its variable, and its running count if it has one."""
        return (self.var,) if self.counter is None else (self.var, self.counter.name)


@dataclass(frozen=True, slots=True)
class If:
    """Runs `then` or `orelse`. `cond` may read `Thread()`, and is then divergent."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    span: Span = _span()


# ---------------------------------------------------------------------------- tags: cost nothing, emit nothing


@dataclass(frozen=True, slots=True)
class TagField:
    """Field of the tag that `elem` carries, by name, or by position if `name` is an int."""

    elem: Elem
    name: str | int


@dataclass(frozen=True, slots=True)
class Once:
    """A set of contributions: every integer of [lo, hi) exactly once."""

    lo: Expr
    hi: Expr


@dataclass(frozen=True, slots=True)
class DataValue:
    """The integer that an index tensor holds at a coordinate, as an uninterpreted value."""

    tensor: str
    index: tuple[Expr, ...]


TagTerm = Union[TagField, Once, DataValue, Expr]


@dataclass(frozen=True, slots=True)
class TagEqual:
    """`left == right`; both scalar, or one a contribution set and the other `Once`."""

    left: TagTerm
    right: TagTerm


@dataclass(frozen=True, slots=True)
class TagTuple:
    """`tag(elem) == (terms...)`: same number of fields, equal one by one."""

    elem: Elem
    terms: tuple[TagTerm, ...]


TagCondition = Union[TagEqual, TagTuple]


@dataclass(frozen=True, slots=True)
class Tag:
    """From here on `obj[c0, c1, ...]` carries the tag `fields`, over the `Coord`s of `obj`.

    On a tensor: of the elements in memory, for the whole kernel. On a fragment or shared tile: of what the tile
    holds at this point; a field may use the tag that an element carried (`TagField`).
    """

    obj: str
    shape: tuple[Expr, ...]
    fields: tuple[tuple[str, TagTerm], ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class AssertTags:
    """All `conditions` hold here for every value of the quantified `Coord`s in the box `shape` under `where`."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    conditions: tuple[TagCondition, ...]
    where: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SpecReduce:
    """`op` over `Coord(axis)` in [0, extent) of `body`: a bound variable of a specification.

    `op` is a key of `REDUCTIONS`, or "logaddexp": the logarithm of the sum of the exponentials.
    """

    op: str
    axis: int
    extent: Expr
    body: SpecTerm
    dtype: DType


@dataclass(frozen=True, slots=True)
class SpecOp:
    """An operator over specification terms."""

    op: str
    args: tuple[SpecTerm, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class SpecSoftmax:
    """The weight of `Coord(axis)` = `at` in the softmax of `score` over `Coord(axis)` in [0, extent).

    exp(score) at `at` over the sum of exp(score); a score of -inf weighs 0, also where there is no other.
    """

    axis: int
    extent: Expr
    at: Expr
    score: SpecTerm
    dtype: DType


SpecTerm = Union[SpecReduce, SpecSoftmax, SpecOp, Expr]


@dataclass(frozen=True, slots=True)
class Spec:
    """`output[c0, ...] = value` at the end of the kernel, for every element; casts are transparent."""

    output: str
    names: tuple[str, ...]
    value: SpecTerm
    span: Span = _span()


Asynchronous = Union[
    MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence, MbarrierExpect, MbarrierArrive, MbarrierWait,
    MbarrierInit, MbarrierFence, BarrierSync, BarrierArrive,
]  # fmt: skip
"""Statements that only order others."""

WaveStep = Union[WaitCounts, WaveBarrier, WavePriority, SchedGroup]
"""Statements of AMD's waves that order others, or hint at an order."""

Stmt = Union[
    Copy, Map, Accumulate, Mma, Barrier, CommitGroup, WaitGroup, Asynchronous, WaveStep, Stage, For, If, Roles,
    Programs, Tag, AssertTags, Spec,
]  # fmt: skip

# ---------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class Requires:
    """A precondition on launch-time scalars, checked at launch."""

    cond: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class InRange:
    """A precondition on an index tensor's contents: lo <= every element < hi. Checked at launch on request."""

    tensor: str
    lo: Expr
    hi: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Assume:
    """An author's unproved assumption; printed in the artefact."""

    cond: Expr
    reason: str
    span: Span = _span()


Precondition = Union[Requires, InRange, Assume]


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
    remarks: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)
    span: Span = _span()

    @property
    def num_threads(self) -> int:
        """Threads in a block."""
        return self.num_warps * self.warp_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, Tensor))

    def object(self, name: str) -> MemoryObject:
        """The memory object called `name`; KeyError if there is none."""
        candidates: tuple[MemoryObject, ...] = (*self.tensors, *self.shared, *self.fragments)
        for candidate in candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
