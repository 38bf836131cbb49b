"""The device library as data: every name that emitted text may use and that each target's header defines.

Emitted text is one C++17 dialect. A target's header (`cuda/argus_cuda.h`, `hip/argus_hip.h`,
`cpu/argus_cpu.h`) is put in front of it at compilation; the text then needs nothing else. All are of
namespace `argus`; `T*` arguments that are not tensors point into fragments, which are plain C arrays aligned
to 16 bytes and indexed by constants once the loops around them are unrolled.

Conventions:
- global memory is `(base, offset)`: a tensor's pointer (plus what is uniform over the block) and an `i64`
  offset in elements; shared memory is `(smem, offset)`: what `ARGUS_SHARED` declared and an `int` offset in
  bytes;
- `N` is a number of elements that move at once; N * sizeof(T) is 1, 2, 4, 8 or 16, and the address in memory
  is a multiple of it, as is the offset in the fragment array;
- no pointer aliases another: tensors are `__restrict__`, and `const` where the kernel never writes them;
- functions marked `warp` must be reached by all lanes of a warp together.
"""

from __future__ import annotations

import re

from argus.backend.device_copies import COPIES
from argus.backend.device_function import AMD, NVIDIA, SHARED, Function
from argus.backend.device_function import function as _f
from argus.ir.expr import OPERATORS
from argus.ir.instruction import MMA, WGMMA, MmaRow, WgmmaRow
from argus.ir.types import DType

TYPES: dict[str, str] = {
    "float32": "float",
    "tfloat32": "argus::tf32",
    "float16": "argus::f16",
    "bfloat16": "argus::bf16",
    "float8_e4m3fn": "argus::e4m3fn",
    "float8_e5m2": "argus::e5m2",
    "float8_e4m3fnuz": "argus::e4m3fnuz",
    "float8_e5m2fnuz": "argus::e5m2fnuz",
    "int8": "argus::i8",
    "uint8": "argus::u8",
    "uint16": "argus::u16",
    "uint32": "unsigned",
    "int32": "int",
    "int64": "argus::i64",
    "bool": "bool",
}
"""C++ spelling of each element type. Each struct holds its bits in a public member `bits` (unsigned short, unsigned
char; tf32: unsigned), is trivially copyable and has a trivial default constructor. `cast` is the only conversion. bf16
and f16 have + - * / (unary -) and comparisons, which are computed in float and rounded once."""

MACROS: dict[str, str] = {
    "ARGUS_KERNEL(name, threads)": "everything before the parameter list of the entry point: extern C, "
    "void, launch bounds of `threads` threads a block",
    "ARGUS_ROLES_KERNEL(name, threads)": "the same for a block that has all registers of a multiprocessor, and deals "
    "them out to roles; CUDA and CPU",
    "ARGUS_CLUSTER_KERNEL(name, threads, blocks)": "the same in clusters of `blocks`; CUDA",
    "ARGUS_SHARED(smem, bytes)": "declares `const argus::shared_t smem`, the block's `bytes` bytes of "
    "shared memory, aligned to 1024. CUDA: dynamic; a launcher passes `abi.shared_bytes(kernel)`",
    "ARGUS_WARP_SIZE": "32 or 64; on the CPU given by the compiler's command line",
    "ARGUS_RESTRICT": "the target's spelling of restrict",
    "ARGUS_GRID_CONSTANT": "before a parameter of type `TensorMap`: constant over the grid, and not copied",
}
"""Macros that a header defines."""


_IDS = (
    _f("launch_dependents", "", "void", "", "the block lets blocks of the next launch come, as far as there is room"),
    _f("begin", "", "void", "", "before every thread's first access: returns when all kernels that were launched "
       "before are complete and what they wrote is visible"),
    _f("thread_id", "", "int", "", "the thread's index in its block"),
    _f("block_id", "int AXIS", "int", "", "the block's index along grid axis 0, 1 or 2"),
    _f("anew", "", "void", "int& x", "the compiler computes anew what depends on `x`", "", NVIDIA),
    _f("next_program", "", "int", "int program",
       "the one that a persistent block runs after `program`; every other round goes through the blocks backwards", "",
       NVIDIA),
    _f("grouped_program", "int GROUP", "BlockIds", "int program, int rows, int columns",
       "the cell {x, y} of the grid (rows, columns) that program `program` has in the order of `grouped_block_ids`"),
    _f("grouped_block_ids", "int GROUP", "BlockIds", "int rows, int columns",
       "of the grid (rows, columns): {x, y} in an order that walks GROUP rows at a time, column by column; a bijection "
       "of the block's indices, and as uniform as they are"),
)  # fmt: skip

_WATCHES = (
    _f("print", "class... A", "void", "const char* format, A... values",
       "prints a line, as C's printf formats it; integers and doubles", "", NVIDIA),
    _f("fail", "class... A", "void", "const char* format, A... values",
       "prints a line and stops the kernel, whose launch ends with an error; on AMD it stops without the line"),
)

_WAVES = (
    _f("load_to_lds", "class T", "void", f"{SHARED}, const T* base, i64 source",
       "each lane starts loading 4 bytes from base + source (elements); lane i's go 4 * i bytes after lane 0's offset",
       "global_load_lds", AMD, True),
    _f("load_to_lds_or_zero", "class T", "void", f"{SHARED}, const T* base, i64 source, bool p",
       "the same; lanes without p bring zeros and read nothing of the tensor", "global_load_lds", AMD, True),
    _f("load_near_to_lds", "class T", "void", f"{SHARED}, const T* base, i64 source",
       "load_to_lds of elements that lie less than 2^31 bytes behind `base`, which all lanes share",
       "buffer_load_lds.offen", AMD, True, like="load_to_lds"),
    _f("load_near_to_lds_or_zero", "class T", "void", f"{SHARED}, const T* base, i64 source, bool p",
       "the same; lanes without p bring zeros and read nothing of the tensor", "buffer_load_lds.offen", AMD, True,
       like="load_to_lds_or_zero"),
    _f("wait_counts", "int VM, int LGKM", "void", "",
       "waits until at most VM of the wave's loads to LDS, and LGKM of its accesses to LDS, are unfinished; -1: any "
       "number", "global_load_lds", AMD, True),
    _f("wave_barrier", "", "void", "", "all waves of the block meet, and nothing more", "", AMD),
    _f("wave_barrier_from", "int FIRST", "void", "", "wave_barrier() for the waves from thread FIRST on", "", AMD),
    _f("wave_barrier_below", "int FIRST", "void", "", "wave_barrier() for the waves before thread FIRST", "", AMD),
    _f("wave_priority", "int LEVEL", "void", "", "the wave's priority, 0 to 3", "", AMD),
    _f("place", "", "int", "int own, int same", "own + same, the same in all lanes, in one register, to which accesses "
       "to shared memory add constants", "", AMD),
    *(_f(f"{name}_of", "int N", "float", "float x, const float* values",
         f"the {name} of x and of N values; NaN if any is", "", AMD) for name in ("maximum", "minimum")),
    *(_f(f"{name}_of_numbers", "int N", "float", "float x, const float* values",
         f"the {name} of x and of N values, of which none is NaN; else any number or NaN", "", AMD,
         like=f"{name}_of") for name in ("maximum", "minimum")),
    *(_f(f"{name}_of_two", "", "float", "float x, float y",
         f"the {name} of x and y, of which none is NaN; else any number or NaN", "", AMD, like=name)
      for name in ("maximum", "minimum")),
    _f("narrow_numbers", "int N, class T", "void", "const float* from, T* to",
       "narrow<N>(from, to) where from[i] is no NaN; else to[i] is any number or NaN", "", AMD, like="narrow"),
    _f("narrow_moderate", "int N, class T", "void", "const float* from, T* to",
       "narrow<N>(from, to) where from[i] is 0, or of a magnitude from 2^-126 to 2^100; else to[i] is any number",
       "", AMD),
    _f("halve", "int N, class From, class To", "void", "const From* from, To* to", "to[i] = cast<To>(from[i] / 2), "
       "which is exact; From: e4m3fn, To: e4m3fnuz", "", AMD),
    _f("sum_of", "int N", "float", "float x, const float* values", "the sum of x and of N values, in any order", "",
       AMD),
    _f("add_products", "int N", "void", "float* sums, const float* left, const float* right",
       "adds the products of N pairs to N sums; a product may or may not be rounded before it is added", "", AMD),
    _f("sched_group", "int MASK, int SIZE, int SYNC", "void", "", "SIZE instructions of the kinds MASK belong here, in "
       "turns with other groups of SYNC", "", AMD),
    _f("sched_kinds", "int MASK", "void", "", "instructions pass this point only if of the kinds MASK", "", AMD),
)  # fmt: skip

_WARP = (
    _f("barrier", "", "void", "", "all threads of the block meet; orders shared and global accesses"),
    _f("shuffle", "class T", "T", "T value, int lane", "`value` of lane `lane` (any T)", warp=True),
    _f("shuffle_xor", "class T", "T", "T value, int mask", "`value` of lane (own ^ mask)", warp=True),
)

_ATOMICS = tuple(
    _f(f"atomic_{name}", "class T", "void", "T* base, i64 offset, T value",
       f"base[offset] {what} value, atomic at device scope, relaxed; T: float, int, i64",
       "red.global global_atomic")
    for name, what in (("add", "+="), ("maximum", "= max with"), ("minimum", "= min with"))
)  # fmt: skip

_MATH = (
    _f("cast", "class To, class From", "To", "From x",
       "conversion; to floats round to nearest, ties to even (tf32: ties away), overflow as PyTorch 2.13 and the "
       "hardware (infinity; e4m3fn stays at 448, infinities too; fnuz types go to NaN); float to integer "
       "truncates, saturates, NaN gives 0; integers wrap; to bool: x != 0"),
    _f("narrow", "int N, class T", "void", "const float* from, T* to", "to[i] = cast<T>(from[i]) for i < N, by as many "
       "at a time as the target converts; T of 8 bits, or with waves of 64 lanes bf16"),
    _f("widen", "int N, class From, class To", "void", "const From* from, To* to",
       "to[i] = cast<To>(from[i]) for i < N, by as many at a time as the target converts; From of 8 bits, To of 16"),
    _f("fractions", "int MOST, class T", "void", "unsigned word, int place, T less, T* to",
       "to[0] and to[1] are unit * n - less, rounded once, for the numbers n in the bits of MOST, at most 255, of "
       "`word` from bit `place` on, and 16 bits further; T: bf16, whose unit is 1 / 64, or f16, 1 / 512"),
    _f("truths", "int N", "void", "bool* x", "x[i] = true where its byte, which may be any, is not 0; i < N"),
    _f("sortable", "class To, class From", "To", "From x",
       "an int in the order of floats: -0.0 is 0, NaN is greater than infinity; or the float that it was made of"),
    _f("where", "class T", "T", "bool c, T x, T y", "c ? x : y"),
    _f("largest_below", "int N", "int", "int x, int bound, const int* values",
       "the maximum of x and of those of N values that are less than `bound`"),
    _f("minimum", "class T", "T", "T x, T y", "NaN if either is; all types"),
    _f("maximum", "class T", "T", "T x, T y", "NaN if either is; all types"),
    _f("absolute", "class T", "T", "T x", "all types"),
    _f("floordiv", "class T", "T", "T x, T y", "rounds toward minus infinity; integers and floats; of the least "
       "integer by -1, itself"),
    _f("floormod", "class T", "T", "T x, T y", "sign of the divisor; integers and floats"),
    _f("umulhi", "", "unsigned", "unsigned x, unsigned y", "the upper 32 bits of the product"),
    _f("add_wrap", "class T", "T", "T x, T y", "integers of any width, modulo 2^bits"),
    _f("sub_wrap", "class T", "T", "T x, T y", "integers of any width, modulo 2^bits"),
    _f("mul_wrap", "class T", "T", "T x, T y", "integers of any width, modulo 2^bits"),
    _f("neg_wrap", "class T", "T", "T x", "integers of any width, modulo 2^bits"),
    _f("shl", "class T", "T", "T x, T y", "x << y, modulo 2^bits; 0 <= y < bits"),
    _f("shr", "class T", "T", "T x, T y", "arithmetic (logical for unsigned types); 0 <= y < bits"),
    *(
        _f(name, "class T", "T", "T x", f"{name} of float, and of f16 and bf16 through float")
        for name, row in OPERATORS.items()
        if row.function is not None and row.takes == "floats"
    ),
    _f("infinity", "class T", "T", "", "positive infinity of float, f16, bf16, e5m2"),
    _f("not_a_number", "class T", "T", "", "a quiet NaN of any float type"),
)  # fmt: skip

_HOPPER = (
    _f("mbarrier_init", "", "void", f"{SHARED}, int arrivals", "a fresh mbarrier of 8 bytes at smem + offset", "",
       NVIDIA),
    _f("mbarrier_init_fence", "", "void", "", "the thread's mbarrier_init become visible, after a barrier to all "
       "threads, and to the copy engine", "", NVIDIA),
    _f("mbarrier_arrive", "", "void", SHARED, "one lane arrives, after all lanes of the warp reached this", "",
       NVIDIA, True),
    _f("blocks_among", "int COUNT, int STRIDE", "unsigned", "",
       "the COUNT blocks of the cluster whose numbers are this one's but for the digit number / STRIDE % COUNT: a bit "
       "each", "", ("cuda",)),
    _f("mbarrier_arrive_cluster", "int CLUSTER", "void", f"{SHARED}, unsigned to = (1u << CLUSTER) - 1",
       "`mbarrier_arrive` on those at this place in all blocks of the cluster, or in those `to`", "", ("cuda",), True),
    _f("cluster_barrier", "", "void", "", "all threads of the cluster meet; orders shared accesses", "", ("cuda",)),
    _f("load_peer", "int N, class T", "void", f"{SHARED}, int block, T* dst",
       "dst[0..N) from smem + offset of block `block` of the cluster", "ld.shared.cluster", ("cuda",)),
    _f("store_peer", "int N, class T", "void", f"{SHARED}, int block, const T* src",
       "src[0..N) to smem + offset of block `block` of the cluster", "st.shared.cluster", ("cuda",)),
    _f("mbarrier_expect", "", "void", f"{SHARED}, int bytes",
       "one lane arrives and announces `bytes`, after all lanes of the warp reached this", "", NVIDIA, True),
    _f("mbarrier_wait", "", "void", f"{SHARED}, int parity",
       "returns when the number of completed phases is not of this parity", "", NVIDIA),
    _f("async_fence", "", "void", "", "orders the thread's accesses to shared memory with those of the copy engine "
       "and of asynchronous products", "", NVIDIA),
    _f("tma_prefetch", "", "void", "const TensorMap& map", "brings the map near; a hint", "", NVIDIA),
    _f("tma_load", "", "void", f"{SHARED}, int barrier, const TensorMap& map, int... at",
       "one lane of the warp starts copying the map's box from corner `at`, innermost coordinate first, to smem + "
       "offset; its bytes count on the mbarrier at smem + barrier when they are there", "tma.load", NVIDIA, True),
    _f("tma_load_multicast", "int COUNT, int STRIDE = 0", "void",
       f"{SHARED}, int barrier, const TensorMap& map, int... at",
       "`tma_load` to this place in all COUNT blocks of the cluster, or in `blocks_among<COUNT, STRIDE>()`; each "
       "counts the bytes", "tma.load.multicast", ("cuda",), True),
    _f("tma_load_once", "", "void", f"{SHARED}, int barrier, const TensorMap& map, int... at",
       "`tma_load` of what nothing else reads soon: it leaves the L2 cache first; a hint", "tma.load", NVIDIA, True,
       "tma_load"),
    _f("tma_load_once_multicast", "int COUNT, int STRIDE = 0", "void",
       f"{SHARED}, int barrier, const TensorMap& map, int... at",
       "the same of `tma_load_multicast`", "tma.load.multicast", ("cuda",), True, "tma_load_multicast"),
    _f("tma_load_im2col", "", "void", f"{SHARED}, int barrier, const TensorMap& map, int... at",
       "one lane of the warp starts copying the map's column of pixels to smem + offset; `at`: the coordinates of the "
       "first one, innermost first, then the offsets of its place; its bytes count on the mbarrier at smem + barrier",
       "tma.load.im2col", NVIDIA, True),
    _f("tma_store", "", "void", f"{SHARED}, const TensorMap& map, int... at",
       "starts copying from smem + offset to the map's box from corner `at`, innermost coordinate first; part of the "
       "thread's current group of bulk stores", "tma.store", NVIDIA),
    *(_f(f"tma_reduce_{name}", "class T", "void", f"{SHARED}, const TensorMap& map, int... at",
         f"`tma_store` that does box {what} tile instead, element by element, atomically at device scope, relaxed; "
         f"T: {types}", f"tma.reduce.{short}", NVIDIA)
      for name, short, what, types in (("add", "add", "+=", "float, f16, bf16, int"),
                                       ("minimum", "min", "= min with", "f16, bf16, int, i64"),
                                       ("maximum", "max", "= max with", "f16, bf16, int, i64"))),
    _f("bulk_commit", "", "void", "", "closes the thread's current group of bulk stores", "", NVIDIA),
    _f("bulk_wait", "int PENDING", "void", "",
       "waits until at most PENDING of the thread's latest groups of bulk stores are unfinished", "", NVIDIA),
    _f("bulk_wait_read", "int PENDING", "void", "", "the same, of groups that have not read their source", "", NVIDIA),
    _f("uniform", "", "int", "int x", "`x` of lane 0", "", NVIDIA, True),
    _f("raise_registers", "int N", "void", "", "waits until each thread of the warpgroup has N registers", "",
       NVIDIA, True),
    _f("lower_registers", "int N", "void", "", "gives back all but N registers of each thread of the warpgroup", "",
       NVIDIA, True),
    _f("role_barrier", "int THREADS", "void", "int id",
       "arrives at barrier `id`, 1 to 15, and waits until THREADS threads have", "bar.sync", NVIDIA),
    _f("role_barrier_arrive", "int THREADS", "void", "int id",
       "arrives at barrier `id`, 1 to 15, for which others wait until THREADS threads have", "bar.arrive", NVIDIA),
    _f("matrix_descriptor", "", "u64", f"{SHARED}, int leading", "of an operand from smem + offset: rows of 128 bytes "
       "in the 128-byte swizzle, in panels of `leading` bytes if they go along m or n", "", NVIDIA),
    _f("narrow_descriptor", "", "u64", SHARED, "of an operand from smem + offset, k along its rows: rows of "
       "64 bytes in the 64-byte swizzle", "", NVIDIA),
    _f("descriptor_at", "", "u64", "u64 descriptor, int units", "the same, `units` times 16 bytes on", "", NVIDIA),
    _f("wgmma_fence", "", "void", "", "orders the warpgroup's registers with the products that follow", "", NVIDIA,
       True),
    _f("wgmma_commit", "", "void", "", "closes the warpgroup's group of products", "", NVIDIA, True),
    _f("wgmma_wait", "int PENDING", "void", "", "waits until at most PENDING of the latest groups are unfinished", "",
       NVIDIA, True),
    _f("wgmma_beside", "", "void", "", "the compiler moves no wait for products that follows in front of this", "",
       NVIDIA),
    _f("wgmma_forget", "int N", "void", "float (&d)[N]", "`d` holds nothing that is used", "", NVIDIA),
    _f("wgmma_hold", "class T, int N", "void", "T (&x)[N]", "the compiler moves no use of `x` across this", "",
       NVIDIA),
)  # fmt: skip

FUNCTIONS: tuple[Function, ...] = (*_IDS, *_WATCHES, *COPIES, *_WAVES, *_WARP, *_ATOMICS, *_MATH, *_HOPPER)
"""Every device function except those of the matrix instructions. The functions from `mbarrier_init` on need sm_90a."""


def mma_function(row: MmaRow) -> Function:
    """Return the device function of a matrix instruction: d[m, n] += sum over k of a[m, k] * b[n, k] for one warp.

    `d`, `a` and `b` point to the lane's values in the order of the row's fragment layouts. The function is overloaded
    or a template over the row's operand types.
    """
    accumulator = TYPES[row.accumulator.name]
    types = ", ".join(TYPES[t.name] for t in row.operands)
    target = "hip" if "gfx942" in row.architectures else "cuda"
    return Function(
        re.sub(r"\W", "_", row.name), "class A, class B", "void", f"{accumulator}* d, const A* a, const B* b",
        f"d += a * b for A, B of: {types}", (row.name,), ("cpu", target), True,
    )  # fmt: skip


def wgmma_function(row: WgmmaRow) -> Function:
    """Return the device function that starts one warpgroup's product: d += a * b, or d = a * b if not `add`.

    `d` points to the thread's values in the order of the row's fragment layout; they are valid after the wait that
    covers its group. `b` is a `matrix_descriptor`. `a` is a `matrix_descriptor` too, or points to the thread's values
    in the order of the row's fragment layout, which must not change until that wait. A and B are the operands' types.
    MAJOR_A and MAJOR_B are 0 if k runs along the rows of shared memory, 1 if it runs across them.
    """
    types = ", ".join(TYPES[t.name] for t in row.operands)
    return Function(
        row.name, "class A, class B, int MAJOR_A, int MAJOR_B, class From", "void",
        "float* d, From a, u64 b, bool add", f"starts d += a * b for A and B of: {types}", (row.name,), NVIDIA, True,
    )  # fmt: skip


def functions(target: str) -> tuple[Function, ...]:
    """Return the functions that the header of `target` ("cpu", "cuda", "hip") defines, with matrix instructions."""
    rows = (*(mma_function(row) for row in MMA.values()), *(wgmma_function(row) for row in WGMMA.values()))
    return tuple(f for f in (*FUNCTIONS, *rows) if target in f.targets)


def cpu_variants() -> str:
    """Return C++ text, for the CPU, of the functions that differ from another one in speed alone: they call it."""
    head = "template <int... N, class... A> inline decltype(auto)"
    lines = [
        f"{head} {f.name}(A&&... x) {{ return {f.like}<N...>(static_cast<A&&>(x)...); }}\n"
        for f in functions("cpu")
        if f.like
    ]
    return f"namespace argus {{\n{''.join(lines)}}}\n"


def cpp_type(dtype: DType) -> str:
    """Return the spelling of `dtype` in emitted text."""
    return TYPES[dtype.name]
