"""Statements that only order others: barriers, groups, waits and fences. What each orders: `docs/soundness.md`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from argus.ir.expr import Expr
from argus.ir.statement import Statement


@dataclass(frozen=True, slots=True)
class Barrier(Statement):
    """All threads of the block meet; shared and global accesses before it are ordered before those after it.

    In a role its threads alone; with `scope` "cluster", outside of roles, those of all blocks of the cluster, whose
    shared accesses it orders alike (barrier.cluster, .release and .acquire)."""

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
    (cp.async.bulk.wait_group); with `read`, only until they have read their sources (`.read`). Others pass by.

    A block's shared memory is there until it ends: before that, all of its bulk stores have to be waited for.
    """

    FORM: ClassVar[str] = "bulk_wait(?read:_read) {pending}"
    pending: int
    read: bool = False


@dataclass(frozen=True, slots=True)
class ProxyFence(Statement):
    """Orders ordinary accesses to shared memory that this thread made, or was ordered after, with asynchronous ones
    that it makes, or that are ordered after it (fence.proxy.async)."""

    FORM: ClassVar[str] = "proxy_fence"


@dataclass(frozen=True, slots=True)
class WaitCounts(Statement):
    """Waits until at most `vm` of the wave's most recent direct-to-LDS loads are unfinished, and with `lgkm` 0 until
    all of its accesses to shared memory are done (s_waitcnt vmcnt(vm) lgkmcnt(lgkm)); None leaves a counter alone.

    A counter counts instructions, of which one copy has `argus.ir.waves.loads_to_lds`. The compiler chooses
    how many instructions other accesses become, so `lgkm` above 0 orders nothing that a proof could use.
    """

    FORM: ClassVar[str] = "s_waitcnt(? vmcnt {vm})(? lgkmcnt {lgkm})"
    vm: int | None = None
    lgkm: int | None = None


@dataclass(frozen=True, slots=True)
class WaveBarrier(Statement):
    """All waves of the block meet (s_barrier); unlike `Barrier` it waits for no access: for the others it orders what a
    wave's last `WaitCounts` with `lgkm` 0 found done."""

    FORM: ClassVar[str] = "s_barrier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint(Statement):
    """A statement that changes no value and no order: it tells the compiler or the machine what is likely to help.

    All that is known of it besides its text form is the row of the instruction table that it names: the ranges of its
    operands, which are its fields in this order, the targets that have it, and the device function that it becomes.
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
    """Asks the compiler to put `size` instructions of the kinds in `mask` here, in turns with the other groups of the
    same `sync` number (LLVM AMDGPU, llvm.amdgcn.sched.group.barrier)."""

    FORM: ClassVar[str] = "sched_group_barrier mask {mask} size {size} sync {sync}"
    ROW: ClassVar[str] = "sched_group_barrier"
    mask: int
    size: int
    sync: int = 0


@dataclass(frozen=True, slots=True)
class MbarrierInit(Statement):
    """Thread 0 of the block, or of the role, initialises all mbarriers of the array `barrier` (mbarrier.init)."""

    FORM: ClassVar[str] = "mbarrier_init {barrier}"
    barrier: str


@dataclass(frozen=True, slots=True)
class MbarrierFence(Statement):
    """Makes what thread 0 of the block, or of the role, initialised before visible to all that is ordered after this,
    copy engine included (fence.mbarrier_init, fence.proxy.async)."""

    FORM: ClassVar[str] = "mbarrier_fence"


@dataclass(frozen=True, slots=True)
class MbarrierExpect(Statement):
    """One lane of the role's warp arrives on `barrier[index]` and announces `bytes` (mbarrier.arrive.expect_tx), after
    all lanes of the warp reached this."""

    FORM: ClassVar[str] = "mbarrier_expect {barrier}[{index}] bytes {bytes}"
    barrier: str
    index: Expr
    bytes: int


@dataclass(frozen=True, slots=True)
class Among:
    """The `count` blocks of a cluster whose numbers are that of the own block but for the digit `number // stride %
    count`: in a cluster of 4 those of the same half (count 2, stride 1), or of the same place in the halves (stride 2).
    """

    FORM: ClassVar[str] = "among {count} by {stride}"
    count: int
    stride: int


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Statement):
    """One lane of each warp of the role arrives on `barrier[index]`, after all lanes of the warp reached this.

    `scope` "block": on the block's own; "cluster": on that of every block of the cluster, or, once each, of those that
    are in one of the groups `among`. To other blocks that tells that phases and asynchronous accesses are over; it
    makes no ordinary access visible there.
    """

    FORM: ClassVar[str] = "mbarrier_arrive {barrier}[{index}](? scope {scope})(? {among})"
    barrier: str
    index: Expr
    scope: str = "block"
    among: tuple[Among, ...] = ()


@dataclass(frozen=True, slots=True)
class MbarrierWait(Statement):
    """Every thread of the role waits until the phase of `barrier[index]` with parity `parity` has completed.

    As mbarrier.try_wait.parity in a loop: with c phases completed so far it returns when c % 2 != parity, which is 0 or
    1; so parity 1 passes at once on a fresh barrier.
    """

    FORM: ClassVar[str] = "mbarrier_wait {barrier}[{index}] parity {parity}"
    barrier: str
    index: Expr
    parity: Expr


@dataclass(frozen=True, slots=True)
class BarrierSync(Statement):
    """All threads of the role arrive at named barrier `number` of the block and wait until `count` threads have, in
    this phase of it: those of every role that arrives there (bar.sync). Accesses before any of these arrivals are
    ordered before what follows the wait. Then the next phase begins, for the same threads."""

    FORM: ClassVar[str] = "barrier_sync {number} count {count}"
    number: int
    count: int

    @property
    def barrier(self) -> str:
        """The barrier's name, which is none of an mbarrier's."""
        return f"barrier {self.number}"


@dataclass(frozen=True, slots=True)
class BarrierArrive(Statement):
    """All threads of the role arrive at named barrier `number`, as in `BarrierSync`, and go on (bar.arrive)."""

    FORM: ClassVar[str] = "barrier_arrive {number} count {count}"
    number: int
    count: int

    @property
    def barrier(self) -> str:
        """The barrier's name, which is none of an mbarrier's."""
        return f"barrier {self.number}"


Asynchronous = Union[
    MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence, MbarrierExpect, MbarrierArrive, MbarrierWait,
    MbarrierInit, MbarrierFence, BarrierSync, BarrierArrive,
]  # fmt: skip
"""Statements that only order others."""


HINTS: tuple[type[Hint], ...] = (WavePriority, SchedGroup)
"""All hints. A new one stands here and in the instruction table, and nowhere else."""

WaveStep = Union[WaitCounts, WaveBarrier, Hint]
"""Statements of AMD's waves that order others, or hint at an order."""
