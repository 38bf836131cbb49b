"""Statements that only order others: barriers, groups, waits and fences. `docs/soundness.md` says what each orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from argus.ir.expr import Expr
from argus.ir.statement import Statement


@dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """Makes all threads of the block wait for one another. Shared and global accesses before it are ordered before
    those after it.

    In a role, only the role's threads take part. With `scope` "cluster", outside of roles, the threads of all blocks of
    the cluster take part, and their shared accesses are ordered as well (barrier.cluster, .release and .acquire).
    """

    FORM: ClassVar[str] = "barrier(? scope {scope})"
    scope: str = "block"


@dataclass(frozen=True, slots=True)
class CommitGroup(Statement):
    """Closes the executing thread's current group of asynchronous copies (cp.async.commit_group)."""

    FORM: ClassVar[str] = "commit_group"


@dataclass(frozen=True, slots=True)
class WaitGroup(Statement):
    """Waits until at most `pending` of the thread's most recent groups are unfinished (cp.async.wait_group)."""

    FORM: ClassVar[str] = "wait_group {pending}"
    pending: int


@dataclass(frozen=True, slots=True)
class MmaFence(Statement):
    """Orders register accesses before it with asynchronous products after it (wgmma.fence)."""

    FORM: ClassVar[str] = "mma_fence"


@dataclass(frozen=True, slots=True)
class MmaCommit(Statement):
    """Closes the warpgroup's current group of asynchronous products (wgmma.commit_group)."""

    FORM: ClassVar[str] = "mma_commit"


@dataclass(frozen=True, slots=True)
class MmaWait(Statement):
    """Waits until at most `pending` of the most recent groups are unfinished (wgmma.wait_group)."""

    FORM: ClassVar[str] = "mma_wait {pending}"
    pending: int


@dataclass(frozen=True, slots=True)
class BulkCommit(Statement):
    """Closes the current group of bulk stores of the role's thread 0 (cp.async.bulk.commit_group)."""

    FORM: ClassVar[str] = "bulk_commit"


@dataclass(frozen=True, slots=True)
class BulkWait(Statement):
    """Thread 0 of the role waits until at most `pending` of its most recent groups of bulk stores are unfinished
    (cp.async.bulk.wait_group); with `read`, only until they have read their sources (`.read`). Other threads do not
    wait.

    A block's shared memory exists until the block ends, so all of its bulk stores must be waited for before the end.
    """

    FORM: ClassVar[str] = "bulk_wait(?read:_read) {pending}"
    pending: int
    read: bool = False


@dataclass(frozen=True, slots=True)
class ProxyFence(Statement):
    """Orders ordinary accesses to shared memory before asynchronous ones (fence.proxy.async). It applies to ordinary
    accesses by this thread, or ordered before it, and to asynchronous accesses by this thread, or ordered after it."""

    FORM: ClassVar[str] = "proxy_fence"


@dataclass(frozen=True, slots=True)
class WaitCounts(Statement):
    """Waits until at most `vm` of the wave's most recent direct-to-LDS loads are unfinished, and with `lgkm` 0 until
    all of its accesses to shared memory are done (s_waitcnt vmcnt(vm) lgkmcnt(lgkm)). None leaves a counter unchecked.

    A counter counts instructions; `argus.ir.waves.loads_to_lds` gives their number for one copy. The compiler chooses
    how many instructions other accesses become, so a proof cannot use `lgkm` above 0.
    """

    FORM: ClassVar[str] = "s_waitcnt(? vmcnt {vm})(? lgkmcnt {lgkm})"
    vm: int | None = None
    lgkm: int | None = None


@dataclass(frozen=True, slots=True)
class WaveBarrier(Statement):
    """All waves of the block wait for one another (s_barrier). Unlike `Barrier`, it does not wait for accesses: for
    other waves it orders the accesses that a wave's last `WaitCounts` with `lgkm` 0 found done."""

    FORM: ClassVar[str] = "s_barrier"


@dataclass(frozen=True, slots=True)
class BeginTurns(Statement):
    """The second half of the block's waves waits at a bare barrier: from here on it is one barrier behind the first
    half, which does what comes next at the same time as the second half does what came before (s_barrier)."""

    FORM: ClassVar[str] = "begin_turns"


@dataclass(frozen=True, slots=True)
class EndTurns(Statement):
    """The first half of the block's waves waits at a bare barrier, so that no half is behind any more (s_barrier)."""

    FORM: ClassVar[str] = "end_turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint(Statement):
    """A statement that changes no value and no order. It tells the compiler or the machine what is likely to help.

    A hint is described by its text form and by the row of the instruction table that it names: the ranges of its
    operands (its fields, in this order), the targets that have it, and the device function that it becomes.
    """

    ROW: ClassVar[str]


@dataclass(frozen=True, slots=True)
class WavePriority(Hint):
    """Sets the wave's priority (s_setprio)."""

    FORM: ClassVar[str] = "s_setprio {level}"
    ROW: ClassVar[str] = "s_setprio"
    level: int


@dataclass(frozen=True, slots=True)
class SchedGroup(Hint):
    """Asks the compiler to place `size` instructions of the kinds in `mask` here, in turns with the other groups of the
    same `sync` number (LLVM AMDGPU, llvm.amdgcn.sched.group.barrier)."""

    FORM: ClassVar[str] = "sched_group_barrier mask {mask} size {size} sync {sync}"
    ROW: ClassVar[str] = "sched_group_barrier"
    mask: int
    size: int
    sync: int = 0


@dataclass(frozen=True, slots=True)
class SchedBarrier(Hint):
    """Asks the compiler to move no instructions past this point, except those of the kinds in `mask` (LLVM AMDGPU,
    llvm.amdgcn.sched.barrier)."""

    FORM: ClassVar[str] = "sched_barrier mask {mask}"
    ROW: ClassVar[str] = "sched_barrier"
    mask: int


@dataclass(frozen=True, slots=True)
class MbarrierInit(Statement):
    """Thread 0 of the block, or of the role, initialises all mbarriers of the array `barrier` (mbarrier.init)."""

    FORM: ClassVar[str] = "mbarrier_init {barrier}"
    barrier: str


@dataclass(frozen=True, slots=True)
class MbarrierFence(Statement):
    """Makes earlier initialisations by thread 0 of the block, or of the role, visible to everything that is ordered
    after this fence, including the copy engine (fence.mbarrier_init, fence.proxy.async)."""

    FORM: ClassVar[str] = "mbarrier_fence"


@dataclass(frozen=True, slots=True)
class MbarrierExpect(Statement):
    """One lane of the role's warp arrives on `barrier[index]` and announces `bytes` (mbarrier.arrive.expect_tx), after
    all lanes of the warp have reached this statement."""

    FORM: ClassVar[str] = "mbarrier_expect {barrier}[{index}] bytes {bytes}"
    barrier: str
    index: Expr
    bytes: int


@dataclass(frozen=True, slots=True)
class Among:
    """The `count` blocks of a cluster whose numbers differ from the own block's number only in the digit
    `number // stride % count`. In a cluster of 4, these are the blocks of the same half (count 2, stride 1), or those
    at the same place in both halves (stride 2)."""

    FORM: ClassVar[str] = "among {count} by {stride}"
    count: int
    stride: int


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Statement):
    """One lane of each warp of the role arrives on `barrier[index]`, after all lanes of the warp have reached this
    statement.

    With `scope` "block", the mbarrier is the block's own. With "cluster", it is the mbarrier of every block of the
    cluster or, once each, of those blocks that are in one of the groups `among`. Other blocks learn from such an
    arrival that phases and asynchronous accesses are over; it makes no ordinary access visible to them.
    """

    FORM: ClassVar[str] = "mbarrier_arrive {barrier}[{index}](? scope {scope})(? {among})"
    barrier: str
    index: Expr
    scope: str = "block"
    among: tuple[Among, ...] = ()


@dataclass(frozen=True, slots=True)
class MbarrierWait(Statement):
    """Every thread of the role waits until the phase of `barrier[index]` with parity `parity` has completed.

    The wait is mbarrier.try_wait.parity in a loop. After c completed phases it returns if c % 2 != parity, where parity
    is 0 or 1, so parity 1 returns immediately on a fresh barrier.
    """

    FORM: ClassVar[str] = "mbarrier_wait {barrier}[{index}] parity {parity}"
    barrier: str
    index: Expr
    parity: Expr


@dataclass(frozen=True, slots=True)
class BarrierSync(Statement):
    """All threads of the role arrive at named barrier `number` of the block and wait until `count` threads have arrived
    in this phase: the threads of every role that uses the barrier (bar.sync). Accesses before any of these arrivals are
    ordered before everything after the wait. Then the next phase begins for the same threads."""

    FORM: ClassVar[str] = "barrier_sync {number} count {count}"
    number: int
    count: int

    @property
    def barrier(self) -> str:
        """The barrier's name, which differs from those of mbarriers."""
        return f"barrier {self.number}"


@dataclass(frozen=True, slots=True)
class BarrierArrive(Statement):
    """All threads of the role arrive at named barrier `number`, as in `BarrierSync`, and continue without waiting
    (bar.arrive)."""

    FORM: ClassVar[str] = "barrier_arrive {number} count {count}"
    number: int
    count: int

    @property
    def barrier(self) -> str:
        """The barrier's name, which differs from those of mbarriers."""
        return f"barrier {self.number}"


Asynchronous = Union[
    MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence, MbarrierExpect, MbarrierArrive, MbarrierWait,
    MbarrierInit, MbarrierFence, BarrierSync, BarrierArrive,
]  # fmt: skip
"""Statements that only order others."""


HINTS: tuple[type[Hint], ...] = (WavePriority, SchedGroup, SchedBarrier)
"""All hints. A new hint is added here and in the instruction table, and nowhere else."""

WaveStep = Union[WaitCounts, WaveBarrier, BeginTurns, EndTurns, Hint]
"""Statements of AMD's waves that order others, or give a hint."""
