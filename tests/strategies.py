"""Random explicit kernels and their mutations, for tests that hold the verifier against the simulator.

`kernels()` draws small well-formed kernels of several families, some right and some wrong in one of the ways that
kernels go wrong: masks, barriers, waits, bounds, initial values, tags, grids. `mutations(kernel)` draws a kernel that
is one small edit away, by name. `sizes(kernel)` draws values for the symbolic sizes that keep the
kernel's preconditions.
"""

from __future__ import annotations

from hypothesis import strategies as st

from argus import mutate
from argus.ir.instruction import MMA
from argus.ir.nodes import CommitGroup, Kernel, Roles, WaitCounts
from argus.ir.text import parse_kernel
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit
from argus.mutate import Kind, Mutation
from argus.simulate.sizes import admissible, integer_parameters, size_vectors
from tests import indices, overlaps
from tests.asynchronous import exchanges, handovers, mistake, relays, shares, streams
from tests.contractions import contractions
from tests.copies import copies
from tests.lanes import replicas, turning, vectors
from tests.loads import loads
from tests.peers import peers
from tests.stores import stores

# ---------------------------------------------------------------------------- families


def _kernel(family: str, head: str, body: list[str], warps: int = 1) -> Kernel:
    lines = "\n".join(f"  {line}" for part in body for line in part.strip("\n").split("\n") if line.strip())
    return parse_kernel(f"kernel {family}\ntarget sm_80\nwarps {warps} of 32\n{head.strip()}\nbody {{\n{lines}\n}}\n")


def _pick(draw: st.DrawFn, right: str, *wrong: str) -> str:
    """The right text three times out of four, else one of the wrong ones."""
    return right if not wrong or draw(st.integers(0, 3)) else draw(st.sampled_from(wrong))


@st.composite
def elementwise(draw: st.DrawFn) -> Kernel:
    """A guarded map over a vector, one tile a block."""
    warps, each = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (1, 4)]))
    threads = 32 * warps
    n = threads * each
    vector = draw(st.sampled_from([1, each]))
    layout = f"[{n} | t {threads}@0*{vector} | v {vector}@0 {each // vector}@0*{threads * vector}]"
    align = 4 * vector
    at = f"program_id(0) * {n} + c0"
    mask = _pick(draw, f"if {at} < N", f"if {at} <= N", "", f"if {at} < N - 1")
    other = draw(st.sampled_from(["else 0.0", "else 1.0"])) if mask else ""
    store_mask = _pick(draw, f"if {at} < N", mask, "")
    grid = _pick(draw, f"(N + {n - 1}) // {n}", f"N // {n}", f"N // {n} + 1")
    source = _pick(draw, at, f"{at} + 1", f"N - 1 - ({at})", f"({at}) // 2")
    value = draw(st.sampled_from(["r[c0] * 2.0", "where(r[c0] < 0.0, -r[c0], r[c0])", "r[c0] + r[c0]", "exp(r[c0])"]))
    asserted = _pick(draw, f"r[c0] carries [{source}]", f"r[c0] carries [{at}]", "r[c0].j == c0")
    where = f"if ({source} < N) & ({source} >= 0)" if draw(st.booleans()) else ""
    head = f"""
size N
tensor x: float32[N] strides [1:int64] align {align}
tensor out: float32[N] strides [1:int64] align {align}
grid [{grid}]
{"requires N % " + str(n) + " == 0" if draw(st.integers(0, 2)) == 0 else ""}
fragment r: float32 {n} layout {layout}
"""
    via = f"layout {layout} via"
    return _kernel(
        "elementwise",
        head,
        [
            "tag x[N] = {i = c0}" if draw(st.integers(0, 3)) else "",
            f"copy r[c0] <- x[{source}] shape {n} {mask} {other} {via} ld.global vector {vector}",
            f"assert (j) in {n} {{{asserted}}}" if not where else "",
            f"map r[c0] = {value} shape {n} layout {layout} scope thread",
            f"copy out[{at}] <- r[c0] shape {n} {store_mask} {via} st.global vector {vector}",
        ],
        warps,
    )


@st.composite
def exchange(draw: st.DrawFn) -> Kernel:
    """Rows go through shared memory, one a loop iteration, and come out permuted; possibly double-buffered."""
    warps = draw(st.sampled_from([1, 2]))
    n = 32 * warps
    stages = draw(st.sampled_from([1, 2]))
    layout = f"[{n} | t {n}@0 | v]"
    inner = draw(st.sampled_from([f"({stages},{n}):({n},1)", f"({stages},{n}):(1,{stages})", f"({stages},{n}):(80,1)"]))
    swizzle = draw(st.sampled_from(["", "Sw<1,0,3> o 0 o "]))
    stage = f"i % {stages}" if stages > 1 else "0"
    lane = draw(st.sampled_from(["c0", f"(c0 + 1) % {n}", f"{n - 1} - c0", "c0 ^ 1", "c0 // 2"]))
    shown = _pick(draw, f"[i, {lane}]", "[i, c0]", f"[i + 1, {lane}]")
    before = _pick(draw, "barrier", "")
    after = "barrier" if stages == 1 else ""
    after = _pick(draw, after, "")
    read = _pick(draw, stage, "0")
    head = f"""
size T
tensor x: float32[T, {n}] strides [{n}:int64, 1:int64] align 4
tensor out: float32[T, {n}] strides [{n}:int64, 1:int64] align 4
grid [{_pick(draw, "1", "2")}]
shared s: float32 {stages}x{n} layout {swizzle}{inner} at 0
fragment a: float32 {n} layout {layout}
fragment b: float32 {n} layout {layout}
"""
    low, step = _pick(draw, "0", "1"), _pick(draw, "1", "2")
    return _kernel(
        "exchange",
        head,
        [
            f"tag x[T, {n}] = {{row = c0, col = c1}}",
            f"for i in {low} .. T step {step} {{",
            f"copy a[c0] <- x[i, c0] shape {n} layout {layout} via ld.global",
            f"copy s[{stage}, c0] <- a[c0] shape {n} layout {layout} via st.shared",
            before,
            f"copy b[c0] <- s[{read}, {lane}] shape {n} layout {layout} via ld.shared",
            f"assert (l) in {n} {{b[c0] carries {shown}}}",
            f"copy out[i, c0] <- b[c0] shape {n} layout {layout} via st.global",
            after,
            "}",
        ],
        warps,
    )


@st.composite
def pipeline(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Asynchronous copies, `stages` buffers, a prologue of stages - 1 groups, rows read by other lanes."""
    stages, wrong = draw(st.sampled_from([2, 3])), mistake(draw, right, "wait", "commit", "barrier")
    wait = stages - 1 if wrong == "wait" else draw(st.sampled_from([stages - 2, stages - 2, 0]))
    layout = "[32 | t 32@0 | v]"
    lane = draw(st.sampled_from(["c0", "c0 ^ 1"]))
    ahead = stages - 1
    prologue = [
        line
        for p in range(ahead)
        for line in (
            f"copy s[{p}, c0] <- x[{p}, c0] shape 32 if {p} < T else 0.0 layout {layout} via cp.async",
            "commit_group",
        )
    ]
    fetch = [
        f"copy s[(i + {ahead}) % {stages}, c0] <- x[i + {ahead}, c0] shape 32 if i + {ahead} < T else 0.0 "
        f"layout {layout} via cp.async",
        "" if wrong == "commit" else "commit_group",
    ]
    use = [
        f"copy r[c0] <- s[i % {stages}, {lane}] shape 32 layout {layout} via ld.shared",
        f"assert (l) in 32 {{r[c0] carries [i, {lane}]}}",
        f"copy out[i, c0] <- r[c0] shape 32 layout {layout} via st.global",
    ]
    first = [f"wait_group {wait}", "" if wrong == "barrier" else "barrier"]
    between = draw(st.sampled_from(["barrier", ""]))
    loop = [*first, *use, between, *fetch] if draw(st.booleans()) else [*first, *fetch, *use]
    head = f"""
size T
tensor x: float32[T, 32] strides [32:int64, 1:int64] align 4
tensor out: float32[T, 32] strides [32:int64, 1:int64] align 4
grid [1]
shared s: float32 {stages}x32 layout ({stages},32):(32,1) at 0
fragment r: float32 32 layout {layout}
"""
    tag = "tag x[T, 32] = {row = c0, lane = c1}"
    return _kernel("pipeline", head, [tag, *prologue, "for i in 0 .. T step 1 {", *loop, "}"])


@st.composite
def row_sums(draw: st.DrawFn) -> Kernel:
    """Sums along a symbolic dimension, with padding, accumulated in registers and over lanes."""
    tile = "[8x16 | t 4@1 8@0 | v 4@1*4]"
    lanes = "[8x4 | t 4@1 8@0 | v]"
    cells = "[8 | t 4@_ 8@0 | v]"
    op, identity = draw(st.sampled_from([("add", "0.0"), ("maximum", "-inf")]))
    padding = identity if draw(st.integers(0, 3)) else draw(st.sampled_from(["0.0", "1.0"]))
    row = "program_id(0) * 8 + c0"
    inside = _pick(draw, f"({row} < M) & (k + c1 < K)", f"{row} < M", f"({row} < M) & (k + c1 <= K)")
    start = _pick(draw, identity, "1.0", "")
    twice = not draw(st.integers(0, 4))
    add = f"accumulate p[c0, c1 % 4] {op} x[c0, c1] shape 8x16 layout {tile} scope thread"
    bounds = _pick(draw, "once(0, K)", "once(0, K - 1)", "once(1, K)")
    total = draw(st.booleans())
    head = f"""
size M
size K
tensor a: float32[M, K] strides [a.stride0:int64, 1:int64] align 4
tensor out: float32[M] strides [1:int64] align 4
grid [{_pick(draw, "(M + 7) // 8", "M // 8 + 1", "M // 8")}]
fragment x: float32 8x16 layout {tile}
fragment p: float32 8x4 layout {lanes}
fragment t: float32 8 layout {cells}
"""
    check = f"assert (i) in 8 {{t[c0] carries [{row}, {bounds}]}}" if total else ""
    return _kernel(
        "row_sums",
        head,
        [
            "tag a[M, K] = {m = c0, k = c1}",
            f"map p[c0, c1] = {start} shape 8x4 layout {lanes} scope thread" if start else "",
            f"for k in 0 .. {_pick(draw, 'K', 'K - 15')} step {_pick(draw, '16', '8')} {{",
            f"copy x[c0, c1] <- a[{row}, k + c1] shape 8x16 if {inside} else {padding} layout {tile} via ld.global",
            add,
            add if twice else "",
            "}",
            f"map t[c0] = {identity} shape 8 layout {cells} scope thread",
            f"accumulate t[c0] {op} p[c0, c1] shape 8x4 layout {lanes} scope warp",
            check if padding == identity and not draw(st.integers(0, 2)) else "",
            f"copy out[{row}] <- t[c0] shape 8 {_pick(draw, f'if {row} < M', '')} layout {cells} via st.global",
        ],
    )


@st.composite
def products(draw: st.DrawFn) -> Kernel:
    """A one-warp matrix product over a symbolic K, operands straight from global memory."""
    row = MMA["mma_m16n8k16"]
    step = _pick(draw, "16", "32")
    k_of_b = _pick(draw, "k0 + c1", "c1", "k0 + 15 - c1")
    start = _pick(draw, "0.0", "1.0")
    bounds = _pick(draw, "once(0, K)", "once(0, K + 1)")
    guarded = draw(st.booleans())
    mask = "if k0 + c1 < K else 0.0" if guarded else ""
    head = f"""
size K
tensor a: bfloat16[16, K] strides [a.stride0:int64, 1:int64] align 2
tensor b: bfloat16[8, K] strides [b.stride0:int64, 1:int64] align 2
tensor c: float32[16, 8] strides [8:int64, 1:int64] align 4
grid [1]
{"" if guarded and draw(st.integers(0, 3)) else "requires K % 16 == 0"}
fragment x: bfloat16 16x16 layout {row.a}
fragment y: bfloat16 8x16 layout {row.b}
fragment acc: float32 16x8 layout {row.c}
"""
    return _kernel(
        "products",
        head,
        [
            "tag a[16, K] = {m = c0, k = c1}",
            "tag b[8, K] = {n = c0, k = c1}",
            f"map acc[c0, c1] = {start} shape 16x8 layout {row.c} scope thread",
            f"for k0 in 0 .. K step {step} {{",
            f"copy x[c0, c1] <- a[c0, k0 + c1] shape 16x16 {mask} layout {row.a} via ld.global",
            f"copy y[c0, c1] <- b[c0, {k_of_b}] shape 8x16 {mask} layout {row.b} via ld.global",
            f"mma acc[c0, c1] += x[c0, c2] * y[c1, c2] shape 16x8x16 via {row.name} warps 1x1",
            "}",
            f"assert (i, j) in 16x8 {{acc[c0, c1] carries [c0, c1, {bounds}]}}",
            f"copy c[c0, c1] <- acc[c0, c1] shape 16x8 layout {row.c} via st.global",
        ],
    )


@st.composite
def branches(draw: st.DrawFn) -> Kernel:
    """Barriers, shuffles and atomics under uniform and divergent conditions."""
    layout = "[64 | t 64@0 | v]"
    condition = draw(st.sampled_from(["thread < 64", "thread < 32", "thread < 40", "thread > 7", "N > 3"]))
    guarded = draw(
        st.sampled_from(
            [
                "barrier",
                "barrier",
                f"map r[c0] = r[c0 ^ 1] shape 64 layout {layout} scope warp",
                f"copy r[c0] <- s[63 - c0] shape 64 layout {layout} via ld.shared",
                f"accumulate total[c0 % 4] add r[c0] shape 64 layout {layout} scope thread via red.global",
            ]
        )
    )
    head = f"""
size N
tensor x: float32[N, 64] strides [64:int64, 1:int64] align 4
tensor out: float32[N, 64] strides [64:int64, 1:int64] align 4
tensor total: float32[4] strides [1:int64] align 4
grid [N]
shared s: float32 64 layout 64:1 at 0
fragment r: float32 64 layout {layout}
"""
    row = _pick(draw, "program_id(0)", "0")
    return _kernel(
        "branches",
        head,
        [
            f"copy r[c0] <- x[program_id(0), c0] shape 64 layout {layout} via ld.global",
            f"copy s[c0] <- r[c0] shape 64 layout {layout} via st.shared",
            _pick(draw, "barrier", ""),
            f"if {condition} {{",
            guarded,
            "}",
            f"copy out[{row}, c0] <- r[c0] shape 64 layout {layout} via st.global",
        ],
        warps=2,
    )


@st.composite
def gathers(draw: st.DrawFn) -> Kernel:
    """Rows of a table that an index tensor names, straight or through shared memory."""
    layout = "[8x16 | t 8@1 4@0 | v 2@1*8 2@0*4]"
    rows = "[8 | t 8@_ 4@0 | v 2@0*4]"
    at = "program_id(0) * 8 + c0"
    live = f"if {at} < T"
    declared = _pick(
        draw, "in_range index from 0 to V", "in_range index from 0 to V + 1", "in_range index from -1 to V"
    )
    guarded = _pick(draw, f"{live} else 0.0", f"{live} else 1.0", "")
    column = _pick(draw, "c1", "c1 + 1", "15 - c1")
    data = f"data(index[{at}])" if column == "c1" else "c0"
    head = f"""
size T
size V
tensor index: int32[T] strides [1:int64] align 4
tensor table: float32[V, 16] strides [16:int64, 1:int64] align 4
tensor out: float32[T, 16] strides [16:int64, 1:int64] align 4
grid [{_pick(draw, "(T + 7) // 8", "T // 8", "(T + 8) // 8")}]
{declared}
shared s: float32 8x16 layout {draw(st.sampled_from(["(8,16):(16,1)", "Sw<2,0,4> o 0 o (8,16):(16,1)"]))} at 0
fragment i: int32 8 layout {rows}
fragment r: float32 8x16 layout {layout}
"""
    through = [
        f"copy s[c0, c1] <- r[c0, c1] shape 8x16 layout {layout} via st.shared",
        _pick(draw, "barrier", ""),
        f"copy r[c0, c1] <- s[c0, 15 - c1] shape 8x16 layout {layout} via ld.shared",
    ]
    shared = draw(st.booleans())
    carried = f"[{data}, 15 - ({column})]" if shared and column == "c1" else f"[{data}, {column}]"
    check = f"assert (t, d) in 8x16 {{r[c0, c1] carries {carried}}} where ({at} < T) & (c1 < 15)"
    return _kernel(
        "gathers",
        head,
        [
            "tag table[V, 16] = {row = c0, col = c1}",
            f"copy i[c0] <- index[{at}] shape 8 {live} else 0 layout {rows} via ld.global",
            f"copy r[c0, c1] <- table[i[c0], {column}] shape 8x16 {guarded} layout {layout} via ld.global",
            *(through if shared else ()),
            check if draw(st.booleans()) else "",
            f"copy out[{at}, c1] <- r[c0, c1] shape 8x16 {live} layout {layout} via st.global",
        ],
    )


@st.composite
def transposes(draw: st.DrawFn) -> Kernel:
    """A matrix, tile by tile through a shared tile that a loop reuses; guarded along both dimensions."""
    read = "[8x8 | t 8@1 4@0 | v 2@0*4]"
    row, column = "program_id(0) * 8 + c0", "n0 + c1"
    out_row, out_column = "n0 + c0", "program_id(0) * 8 + c1"
    inside = _pick(draw, f"({row} < M) & ({column} < N)", f"{row} < M", f"({row} <= M) & ({column} < N)")
    outside = _pick(draw, f"({out_row} < N) & ({out_column} < M)", f"({out_row} < M) & ({out_column} < N)")
    layout = draw(st.sampled_from(["(8,8):(8,1)", "(8,8):(9,1)", "(8,8):(1,8)", "Sw<2,0,3> o 0 o (8,8):(8,1)"]))
    index = _pick(draw, "c1, c0", "c0, c1")
    asserted = f"{out_column}, {out_row}" if draw(st.booleans()) else f"{out_column}, n0 + c0"
    head = f"""
size M
size N
tensor x: float32[M, N] strides [x.stride0:int64, 1:int64] align 4
tensor out: float32[N, M] strides [out.stride0:int64, 1:int64] align 4
grid [{_pick(draw, "(M + 7) // 8", "(N + 7) // 8", "M // 8")}]
shared s: float32 8x8 layout {layout} at 0
fragment r: float32 8x8 layout {read}
"""
    return _kernel(
        "transposes",
        head,
        [
            "tag x[M, N] = {m = c0, n = c1}",
            f"for n0 in 0 .. {_pick(draw, 'N', 'N - 7', 'M')} step 8 {{",
            f"copy r[c0, c1] <- x[{row}, {column}] shape 8x8 if {inside} else 0.0 layout {read} via ld.global",
            f"copy s[c0, c1] <- r[c0, c1] shape 8x8 layout {read} via st.shared",
            _pick(draw, "barrier", ""),
            f"copy r[c0, c1] <- s[{index}] shape 8x8 layout {read} via ld.shared",
            f"assert (i, j) in 8x8 {{r[c0, c1] carries [{asserted}]}} where ({out_row} < N) & ({out_column} < M)",
            f"copy out[{out_row}, {out_column}] <- r[c0, c1] shape 8x8 if {outside} layout {read} via st.global",
            _pick(draw, "barrier", ""),
            "}",
        ],
    )


ASYNCHRONOUS = {
    family.__name__: family
    for family in (
        pipeline, copies, loads, peers, streams, shares, relays, handovers, exchanges, contractions, stores, turning,
    )
}  # fmt: skip
"""Families in which statements run beside others, by name. Each can be drawn right, or with a mistake."""


def kernels() -> st.SearchStrategy[Kernel]:
    """A well-formed explicit kernel, right or wrong."""
    synchronous = (
        elementwise(),
        exchange(),
        row_sums(),
        products(),
        branches(),
        branches(),  # so that convergence is met as often as the rest
        gathers(),
        transposes(),
        replicas(),
        vectors(),
    )
    asynchronous = (*(family() for family in ASYNCHRONOUS.values()), contractions())
    indexed = tuple(family() for family in indices.FAMILIES)
    overlapping = tuple(family() for family in overlaps.FAMILIES)
    # These weights give a third that depend on data, a tenth that write cells twice in a statement, and nearly half
    # that are asynchronous: ill-formed ones are drawn again, and Hypothesis repeats parts of what it drew.
    drawn = st.sampled_from((*[asynchronous] * 11, *[synchronous] * 3, *[indexed] * 13, *[overlapping] * 7))
    both = drawn.flatmap(lambda families: st.one_of(*families))
    return both.filter(lambda k: not check_explicit(k))


# ---------------------------------------------------------------------------- sizes

_INTERESTING = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 128, 130)


def sizes(kernel: Kernel) -> st.SearchStrategy[dict[str, int]]:
    """Small values for every size, among them 0, 1 and those around the tiles' extents."""
    names = integer_parameters(kernel)
    choice = st.fixed_dictionaries({name: st.sampled_from(_INTERESTING) for name in names})
    small = choice.filter(lambda values: admissible(kernel, values))
    vectors = size_vectors(kernel) if kernel.barriers else ()
    return st.one_of(st.sampled_from(vectors), small) if vectors else small


# ---------------------------------------------------------------------------- mutations


_ORDER = (Kind.DROP, Kind.MOVE, Kind.COUNT)
"""Edits of what orders others."""


def mutations(kernel: Kernel) -> st.SearchStrategy[Mutation]:
    """A well-formed kernel that is one edit away; of asynchronous ones, two in three change what orders."""
    found = mutate.mutations(kernel)
    ordering = [n for n, m in enumerate(found) if m.kind in _ORDER]
    chosen = st.sampled_from(range(len(found)))  # by number: Hypothesis hashes what it draws from
    if ordering and any(isinstance(s, CommitGroup | Roles | WaitCounts) for s in walk(kernel.body)):
        chosen = st.one_of(st.sampled_from(ordering), st.sampled_from(ordering), chosen)
    return chosen.map(found.__getitem__).filter(lambda m: not check_explicit(m.kernel))
