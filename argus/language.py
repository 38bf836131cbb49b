"""The names that a kernel's author uses: `import argus.language as al`.

This file holds their signatures. docs/language.md describes their meaning, and `argus.frontend` elaborates them.
Kernels are read, not run: each of these functions raises `SourceError` if Python calls it.

The signatures name the kinds of arguments. A Python type checker accepts any value for them (a tuple for `Shape`).

- `Tile`: a tile in registers, or a scalar, which is a tile of shape `()`.
- `View`: a tensor parameter, a shared tile, or a part of one: `x[i]`, `a[m0 : m0 + 64, k0 : k0 + 32]`.
- `Tiles`: a tuple of tiles.
- `TileOrView`: either of the two; the result is of the same kind.
- `Scalar`: one number: a constant, a size, or a tile of shape `()`.
- `Constant`: a number that is known when the kernel is compiled.
- `Condition`: the result of `in_range` and similar functions, for `requires`.
- `Range`: the range of a `for` loop.
- `Shape`: a tuple of constants, one for each dimension.
- `DType`, `Layout`, `Mbarrier`, `NamedBarrier`: an element type, a memory or register layout, and barriers.
- `ProgramIds`: one number for a grid of one axis, or a tuple of one number for each axis.
- `ProductLayouts`: the register layouts `.a`, `.b` and `.c` of a product.
- `Term`: an expression of a lambda's parameters, in a specification or a tag: a number, a tuple of numbers, or named
  fields (`dict(row=i, col=j)`).
- `Stream`: a stream of a program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from argus.diagnostic import Diagnostic, SourceError
from argus.ir import types

_Function = TypeVar("_Function", bound=Callable[..., object])

__all__ = [
    "Tensor",
    "abs",
    "arange",
    "argmax",
    "argmin",
    "assert_tags",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "barrier",
    "begin_turns",
    "bfloat16",
    "blocked",
    "boolean",
    "cdiv",
    "ceil",
    "cluster_rank",
    "collective",
    "constexpr",
    "copy",
    "cos",
    "covers",
    "cp_async_commit",
    "cp_async_wait",
    "cumprod",
    "cumsum",
    "current_stream",
    "device_assert",
    "device_print",
    "distinct",
    "empty",
    "end_turns",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "float32",
    "floor",
    "fma",
    "fragment_layout",
    "full",
    "grid",
    "in_range",
    "int8",
    "int32",
    "int64",
    "interleave",
    "invariant",
    "join",
    "layout",
    "load",
    "log",
    "log1p",
    "log2",
    "logsumexp",
    "max",
    "maximum",
    "mbarrier",
    "min",
    "minimum",
    "mma",
    "mma_commit",
    "mma_fence",
    "mma_wait",
    "moderate",
    "named_barrier",
    "next_power_of_2",
    "num_programs",
    "num_threads",
    "num_warps",
    "offsets",
    "once",
    "peer",
    "permutation",
    "permute",
    "pipelined",
    "prod",
    "program_id",
    "proxy_fence",
    "requires",
    "reshape",
    "role",
    "rsqrt",
    "s_barrier",
    "s_setprio",
    "s_waitcnt",
    "sched_barrier",
    "sched_group_barrier",
    "shared",
    "shuffle_down",
    "shuffle_up",
    "shuffle_xor",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "sortable",
    "sorted",
    "spec",
    "split",
    "sqrt",
    "stage",
    "static_range",
    "store",
    "stream",
    "sum",
    "swizzle",
    "tag",
    "tanh",
    "tanh_approx",
    "tfloat32",
    "thread_id",
    "tiled_mma",
    "topk",
    "trans",
    "uint8",
    "uint16",
    "uint32",
    "umulhi",
    "warp_size",
    "where",
    "without_nan",
    "zeros",
]

if TYPE_CHECKING:  # For a type checker, every value is a tile, and annotations carry no information.
    from typing import Annotated as Tensor

    Tile: TypeAlias = Any
    Tiles: TypeAlias = Any
    View: TypeAlias = Any
    TileOrView: TypeAlias = Any
    Scalar: TypeAlias = Any
    Constant: TypeAlias = Any
    Condition: TypeAlias = Any
    Range: TypeAlias = Any
    Shape: TypeAlias = tuple[Any, ...]
    DType: TypeAlias = Any
    Layout: TypeAlias = Any
    Mbarrier: TypeAlias = Any
    NamedBarrier: TypeAlias = Any
    ProgramIds: TypeAlias = Any
    ProductLayouts: TypeAlias = Any
    Term: TypeAlias = Any
    Stream: TypeAlias = Any
    FuncSource: TypeAlias = Callable[..., Any]
    constexpr: TypeAlias = Any
    float32: TypeAlias = Any
    tfloat32: TypeAlias = Any
    float16: TypeAlias = Any
    bfloat16: TypeAlias = Any
    float8_e4m3fn: TypeAlias = Any
    float8_e5m2: TypeAlias = Any
    float8_e4m3fnuz: TypeAlias = Any
    float8_e5m2fnuz: TypeAlias = Any
    int8: TypeAlias = Any
    uint8: TypeAlias = Any
    uint16: TypeAlias = Any
    uint32: TypeAlias = Any
    int32: TypeAlias = Any
    int64: TypeAlias = Any
    boolean: TypeAlias = Any
else:
    float32 = types.float32
    tfloat32 = types.tfloat32
    float16 = types.float16
    bfloat16 = types.bfloat16
    float8_e4m3fn = types.float8_e4m3fn
    float8_e5m2 = types.float8_e5m2
    float8_e4m3fnuz = types.float8_e4m3fnuz
    float8_e5m2fnuz = types.float8_e5m2fnuz
    int8 = types.int8
    uint8 = types.uint8
    uint16 = types.uint16
    uint32 = types.uint32
    int32 = types.int32
    int64 = types.int64
    boolean = types.boolean

    class Tensor:
        """Annotation of a global tensor: `Tensor[dtype, "M K"]`, or `Tensor[dtype, "M K", "ldm 1"]` with strides."""

        def __class_getitem__(cls, _item: object) -> type[Tensor]:
            return cls

    class constexpr:
        """Annotation of a compile-time parameter."""


def _kernel_only(function: _Function) -> _Function:
    """Mark a name that has a signature but no Python behaviour."""

    @functools.wraps(function)
    def outside(*_args: object, **_kwargs: object) -> NoReturn:
        name = function.__name__
        raise SourceError(
            Diagnostic(
                "outside-kernel",
                f"`al.{name}` was called from Python",
                help=f"call `al.{name}` inside a function under `@argus.kernel` or `@argus.func`",
            )
        )

    return outside  # type: ignore[return-value]


# ---------------------------------------------------------------------------- position and preconditions


@_kernel_only
def grid(
    e0: Scalar, e1: Scalar | None = None, e2: Scalar | None = None, e3: Scalar | None = None,
    e4: Scalar | None = None, e5: Scalar | None = None, e6: Scalar | None = None, e7: Scalar | None = None, *,
    group: int = 1, cluster: int = 1, persistent: bool = False, schedule: str = "cooperative",
) -> ProgramIds:  # fmt: skip
    """Declare the launch grid, with one extent for each axis, and return the program ids: a scalar, or a tuple.

    On a grid of two axes, `group` rows run at a time. `cluster` consecutive programs along the first axis run together;
    in a pipelined loop with producer warps, data that several of them need is loaded once. The first extent is rounded
    up to a multiple of `cluster`. With `persistent`, the kernel launches as many blocks as run at once, and these
    blocks share the programs of the grid.

    `schedule="pingpong"` is for persistent kernels whose loop has producer warps. Two groups of `num_warps` computing
    warps take turns: one group multiplies the tiles of its program while the other group stores its results. On targets
    without producer warps, the schedule is "cooperative": all computing warps share one program.
    """


@_kernel_only
def program_id(axis: int) -> Scalar:
    """Return the block's index along a grid axis."""


@_kernel_only
def num_programs(axis: int) -> Scalar:
    """Return the declared number of blocks along a grid axis."""


@_kernel_only
def cluster_rank() -> Scalar:
    """Return the block's number in its cluster, counted from 0: the program's index along the first axis, modulo
    `cluster`."""


@_kernel_only
def thread_id() -> Scalar:
    """Return the thread's index in the block."""


@_kernel_only
def num_threads() -> Constant:
    """Return the number of threads in a block, a constant."""


@_kernel_only
def num_warps() -> Constant:
    """Return the number of warps in a block, a constant."""


@_kernel_only
def warp_size() -> Constant:
    """Return the number of threads in a warp, a constant: 32, or 64 on gfx942."""


@_kernel_only
def requires(condition: Scalar | Condition) -> None:
    """State a precondition over sizes, strides and scalar arguments, or a fact such as `in_range(...)`. Every call
    checks it."""


@_kernel_only
def in_range(tensor: View, lo: Scalar, hi: Scalar) -> Condition:
    """Return a condition for `requires`: every element of an index tensor is in [lo, hi)."""


@_kernel_only
def sorted(tensor: View) -> Condition:
    """Return a condition for `requires`: the elements of an index tensor do not decrease along its last dimension."""


@_kernel_only
def distinct(tensor: View) -> Condition:
    """Return a condition for `requires`: no two elements of an index tensor are equal."""


@_kernel_only
def permutation(tensor: View) -> Condition:
    """Return a condition for `requires`: each integer in [0, n) occurs once in a one-dimensional index tensor of extent
    n."""


@_kernel_only
def offsets(tensor: View, total: Scalar, longest: Scalar | None = None) -> Condition:
    """Return a condition for `requires`: an index tensor begins with 0, never decreases, and ends with `total`.

    If `longest` is given, segments have at most `longest` elements.
    """


@_kernel_only
def covers(
    output: View, where: Callable[..., Scalar] | None = None, at: Callable[..., Shape] | None = None
) -> None:
    """Declare the part of an output that the kernel writes: the elements `at(i, ...)` for which `where(i, ...)` holds.
    """


@_kernel_only
def assume(condition: Scalar, reason: str) -> None:
    """Assume a condition without proof. The assumption is printed in the artefact."""


@_kernel_only
def invariant(
    tensor: View, size: Scalar, size1: Scalar | None = None, size2: Scalar | None = None, size3: Scalar | None = None
) -> None:
    """Promise that the bits of each row of an output do not depend on the batch.

    A row is the set of elements of `tensor` at one index along the axes whose extents are the given sizes. Every launch
    that has this row computes the same bits for it, whatever these sizes are, whatever other rows hold, and in whatever
    order blocks run. A size may also be an integer argument, such as a number of parts that the host chooses by the
    batch. The proof compares the order of float operations (docs/language.md).
    """


# ---------------------------------------------------------------------------- loops


@_kernel_only
def static_range(start: Scalar, stop: Scalar | None = None, step: int = 1) -> Range:
    """Return the range of a loop over constants that the compiler unrolls."""


@_kernel_only
def pipelined(
    start: Scalar, stop: Scalar | None = None, step: int = 1, stages: int = 3, producer_warps: int = 0
) -> Range:
    """Return the range of a loop whose `stage` copies run `stages - 1` iterations ahead. With `producer_warps`,
    additional warps issue these copies."""


# ---------------------------------------------------------------------------- tiles


@_kernel_only
def arange(start: int, stop: int | None = None) -> Tile:
    """Return the int32 index tile `[stop - start]`: start, start + 1, ..."""


@_kernel_only
def zeros(shape: Shape, dtype: DType, layout: Layout | None = None) -> Tile:
    """Return a tile of zeros."""


@_kernel_only
def full(shape: Shape, value: Scalar, dtype: DType, layout: Layout | None = None) -> Tile:
    """Return a tile in which every element is `value`."""


@_kernel_only
def trans(x: TileOrView) -> TileOrView:
    """Return a tile or view with its two dimensions swapped."""


@_kernel_only
def permute(x: TileOrView, dims: Shape) -> TileOrView:
    """Return `x` with permuted dimensions: dimension i of the result is dimension `dims[i]` of `x`."""


@_kernel_only
def reshape(x: Tile, shape: Shape) -> Tile:
    """Return a tile of another shape with the same elements in the same row-major order."""


@_kernel_only
def join(x: Tile, y: Tile) -> Tile:
    """Return the two tiles, which have the same shape, as one tile with a new last dimension of extent 2."""


@_kernel_only
def split(x: Tile) -> Tiles:
    """Return two tiles: the elements at 0 and those at 1 of the last dimension, whose extent is 2. `split` undoes
    `join`."""


@_kernel_only
def interleave(x: Tile, y: Tile) -> Tile:
    """Return the elements of two tiles alternately along the last dimension: those of `x` at even indices, those of `y`
    at odd ones."""


@_kernel_only
def load(
    view: View,
    mask: Tile | None = None,
    other: Scalar | None = None,
    boundary_check: Shape = (),
    layout: Layout | None = None,
    instruction: str | None = None,
) -> Tile:
    """Load a view of memory into registers. Masked-out elements are `other` (default 0)."""


@_kernel_only
def store(
    view: View, value: Tile, mask: Tile | None = None, boundary_check: Shape = (), instruction: str | None = None
) -> None:
    """Store a tile to a view of a tensor or shared tile."""


@_kernel_only
def atomic_add(view: View, value: Tile, mask: Tile | None = None, boundary_check: Shape = ()) -> None:
    """Add a tile atomically to a view of a tensor (relaxed order, device scope).

    The dtypes are float32, int32 and int64, and also float16 and bfloat16 if the copy engine does the update
    (docs/language.md, policies).
    """


@_kernel_only
def atomic_max(view: View, value: Tile, mask: Tile | None = None, boundary_check: Shape = ()) -> None:
    """Update a view of a tensor by an atomic maximum (relaxed order, device scope).

    The dtypes are int32 and int64, and also float16 and bfloat16 if the copy engine does the update, as for
    `atomic_add`.
    """


@_kernel_only
def atomic_min(view: View, value: Tile, mask: Tile | None = None, boundary_check: Shape = ()) -> None:
    """Update a view of a tensor by an atomic minimum (relaxed order, device scope).

    The dtypes are int32 and int64, and also float16 and bfloat16 if the copy engine does the update, as for
    `atomic_add`.
    """


# ---------------------------------------------------------------------------- elementwise


@_kernel_only
def exp(x: Tile) -> Tile:
    """Return e to the power of x."""


@_kernel_only
def exp2(x: Tile) -> Tile:
    """Return 2 to the power of x."""


@_kernel_only
def log(x: Tile) -> Tile:
    """Return the natural logarithm."""


@_kernel_only
def expm1(x: Tile) -> Tile:
    """Return exp(x) - 1, accurate also for small x."""


@_kernel_only
def log1p(x: Tile) -> Tile:
    """Return the natural logarithm of 1 + x, accurate also for small x."""


@_kernel_only
def log2(x: Tile) -> Tile:
    """Return the logarithm to the base 2."""


@_kernel_only
def sqrt(x: Tile) -> Tile:
    """Return the square root."""


@_kernel_only
def rsqrt(x: Tile) -> Tile:
    """Return 1 / sqrt(x)."""


@_kernel_only
def sin(x: Tile) -> Tile:
    """Return the sine of an angle in radians. The accuracy is that of PyTorch for every float32."""


@_kernel_only
def cos(x: Tile) -> Tile:
    """Return the cosine of an angle in radians. The accuracy is that of PyTorch for every float32."""


@_kernel_only
def tanh(x: Tile) -> Tile:
    """Return the hyperbolic tangent."""


@_kernel_only
def tanh_approx(x: Tile) -> Tile:
    """Return the hyperbolic tangent by one instruction on NVIDIA GPUs, with a relative error of up to 2^-11."""


@_kernel_only
def erf(x: Tile) -> Tile:
    """Return the error function."""


@_kernel_only
def without_nan(x: Tile) -> Tile:
    """Return x. Where x is NaN, any number may come instead: the author promises that no result depends on it.

    Attention's weights are an example: a row whose sum is NaN gives NaN, whatever its products were. On gfx942, maxima
    and roundings to bfloat16 then take fewer instructions.
    """


@_kernel_only
def moderate(x: Tile) -> Tile:
    """Return x, which is 0 or has a magnitude from 2^-126 to 2^100. Where x is NaN or of another magnitude, any number
    may come instead: the author promises that no result depends on it.

    Attention's weights are an example: they are exponentials, not above 1. On gfx942 rounding to bfloat16 then takes
    half of the instructions.
    """


@_kernel_only
def sigmoid(x: Tile) -> Tile:
    """Return 1 / (1 + exp(-x))."""


@_kernel_only
def abs(x: Tile) -> Tile:
    """Return the absolute value."""


@_kernel_only
def floor(x: Tile) -> Tile:
    """Return the largest integer not above x, as a float."""


@_kernel_only
def ceil(x: Tile) -> Tile:
    """Return the smallest integer not below x, as a float."""


@_kernel_only
def maximum(x: Tile, y: Tile) -> Tile:
    """Return the elementwise maximum. NaN propagates."""


@_kernel_only
def minimum(x: Tile, y: Tile) -> Tile:
    """Return the elementwise minimum. NaN propagates."""


@_kernel_only
def where(condition: Tile, x: Tile, y: Tile) -> Tile:
    """Return x where the condition holds, else y."""


@_kernel_only
def sortable(x: Tile, dtype: DType) -> Tile:
    """Return a float32 as an int32 of the same order: -0.0 counts as 0.0, and NaN is above infinity. With `al.float32`,
    return the float32 of such an int32."""


@_kernel_only
def fma(x: Tile, y: Tile, z: Tile) -> Tile:
    """Return x * y + z."""


@_kernel_only
def umulhi(x: Tile, y: Tile) -> Tile:
    """Return the upper 32 bits of the product of two uint32 values; `x * y` is the lower half."""


@_kernel_only
def cdiv(x: Scalar, y: Scalar) -> Scalar:
    """Return the integer quotient x / y rounded up; y > 0."""


@_kernel_only
def next_power_of_2(x: int) -> Constant:
    """Return the smallest power of two that is at least the constant `x`."""


# ---------------------------------------------------------------------------- across elements


@_kernel_only
def sum(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the sum along a dimension, or of all elements."""


@_kernel_only
def max(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the maximum along a dimension, or of all elements."""


@_kernel_only
def min(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the minimum along a dimension, or of all elements."""


@_kernel_only
def prod(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the product along a dimension, or of all elements."""


@_kernel_only
def cumsum(x: Tile, axis: int, reverse: bool = False) -> Tile:
    """Return, for each element, the sum of the elements up to it along a dimension, itself included.

    With `reverse`, sum from the element to the end. In a specification: `al.cumsum(lambda k: x[i, k])[j]`.
    """


@_kernel_only
def cumprod(x: Tile, axis: int, reverse: bool = False) -> Tile:
    """Return, for each element, the product of the elements up to it along a dimension, itself included.

    With `reverse`, multiply from the element to the end. In a specification: `al.cumprod(lambda k: x[i, k])[j]`.
    """


@_kernel_only
def sort(x: Tile, axis: int, descending: bool = False) -> Tile:
    """Sort a tile along a dimension whose extent is a power of two. NaN counts as greater than every number.

    -0.0 counts as 0.0, and the result contains 0.0 in its place.
    """


@_kernel_only
def topk(x: Tile, k: int, axis: int, mask: Tile | None = None, largest: bool = True) -> Tiles:
    """Return two tiles: the k greatest elements along a dimension in descending order, and their int32 places.

    `largest=False`: the k least, in ascending order. `mask` selects the elements that take part. If fewer
    than k take part, the last results are no elements of x. Of equal elements the first comes first. NaN counts as
    greater than every number, and -0.0 as 0.0. Each of the k rounds is a maximum, so k should be small. In a
    specification: `al.topk(lambda n: x[m, n], K)[0][r]` for an element, and `[1][r]` for its place.
    """


@_kernel_only
def associative_scan(
    x: Tile | Tiles, axis: int, combine: FuncSource, reverse: bool = False, associative: bool = False
) -> Tile | Tiles:
    """Combine, for each element, all elements up to it along a dimension by `combine`, an `@argus.func`.

    `combine(before, next)` is a function of two numbers. `x` may be a tuple of n tiles of the same shape, which are
    combined together: `combine` then takes n numbers for what comes before and n for what comes next, and returns n
    numbers.

    `combine` must be associative, because parts are combined first. The compiler decides this for sums, products,
    extrema and choices, as in linear recurrences `(a, b), (c, d) -> (a * c, b * c + d)`. If it cannot decide, the
    author states it with `associative=True` (docs/soundness.md).
    """


@_kernel_only
def argmax(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the int32 index of the maximum along a dimension, or of the maximum of all elements, counted row by row.

    Among equal elements the first one counts, and the first NaN if there is any, as in PyTorch.
    """


@_kernel_only
def argmin(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the int32 index of the minimum along a dimension, or of the minimum of all elements, counted row by row.

    Among equal elements the first one counts, and the first NaN if there is any, as in PyTorch.
    """


@_kernel_only
def mma(a: Tile | View, b: Tile | View, acc: Tile, instruction: str | None = None, warps: Shape | None = None) -> Tile:
    """Return `acc[m, n] + sum(k, a[m, k] * b[n, k])`."""


@_kernel_only
def shuffle_xor(x: Tile, mask: int) -> Tile:
    """Return `y[..., i] = x[..., i ^ mask]` between the lanes of a warp."""


@_kernel_only
def shuffle_up(x: Tile, delta: int) -> Tile:
    """Return `y[..., i] = x[..., i - delta]` between the lanes of a warp. The first `delta` lanes keep their own
    values."""


@_kernel_only
def shuffle_down(x: Tile, delta: int) -> Tile:
    """Return `y[..., i] = x[..., i + delta]` between the lanes of a warp. The last `delta` lanes keep their own values.
    """


# ---------------------------------------------------------------------------- shared memory and synchronisation


@_kernel_only
def stage(
    view: View | Tile, boundary_check: Shape = (), other: Scalar = 0, once: bool = False, mask: Tile | None = None
) -> View:
    """Request a shared copy of a view or of a register tile, visible to the whole block. Masked elements are `other`.

    `once=True` is a hint that nothing else reads these elements soon, so that they leave the L2 cache first.
    """


@_kernel_only
def shared(shape: Shape, dtype: DType, layout: Layout | None = None) -> View:
    """Declare a shared tile. `layout` is a layout, a swizzle of the row-major layout, or None for row-major."""


@_kernel_only
def copy(
    dst: View,
    src: View,
    mask: Tile | None = None,
    boundary_check: Shape = (),
    other: Scalar | None = None,
    instruction: str | None = None,
    layout: Layout | None = None,
    signal: Mbarrier | None = None,
) -> None:
    """Copy memory to memory. `instruction="cp.async"`, or "global_load_lds" on gfx942, makes the copy asynchronous.

    On sm_90a, `instruction="tma.load"` is a bulk copy, and the mbarrier `signal` counts its bytes.
    """


@_kernel_only
def cp_async_commit() -> None:
    """Close the thread's group of `cp.async` copies. On gfx942, which has no such copies, the call does nothing."""


@_kernel_only
def cp_async_wait(pending: int) -> None:
    """Wait until at most `pending` groups of the thread are unfinished. On gfx942 the call does nothing: see
    `s_waitcnt`."""


@_kernel_only
def peer(view: View, rank: Scalar) -> View:
    """Return this part of the shared tile of block `rank` of the cluster: distributed shared memory (sm_90a, cpu)."""


@_kernel_only
def barrier(scope: str = "block") -> None:
    """Wait for all threads of the block; with `scope` "cluster" (sm_90a, cpu), for those of all blocks of the cluster.
    """


@_kernel_only
def role(
    function: FuncSource,
    args: tuple[TileOrView | Mbarrier | NamedBarrier, ...] = (),
    num_warps: int = 4,
    registers: int | None = None,
) -> None:
    """Run `function(*args)` on the next `num_warps` warps, with at most `registers` registers a thread (sm_90a, cpu).
    Roles come last."""


@_kernel_only
def mbarrier(count: int, arrivals: int) -> Mbarrier:
    """Declare `count` mbarriers (sm_90a). A phase of an mbarrier takes `arrivals` arrivals, and the bytes that it is
    told to expect.

    The methods of one of them, `full[i]`: `.expect(bytes)` arrives and announces bytes, `.arrive()` arrives, once for
    each warp of the role, and `.wait(parity)` waits for the phase of that parity.
    """


@_kernel_only
def mma_fence() -> None:
    """Order earlier writes of registers before later asynchronous products that read or accumulate into them (sm_90a).
    """


@_kernel_only
def mma_commit() -> None:
    """Close the role's group of asynchronous products (sm_90a)."""


@_kernel_only
def mma_wait(pending: int) -> None:
    """Wait until at most `pending` groups of asynchronous products are unfinished (sm_90a)."""


@_kernel_only
def proxy_fence() -> None:
    """Order accesses of threads to shared memory with bulk copies and asynchronous products (sm_90a)."""


@_kernel_only
def named_barrier(threads: int) -> NamedBarrier:
    """Declare a barrier between roles with `threads` arrivals a phase (sm_90a, cpu). `.sync()` arrives and waits;
    `.arrive()` arrives and continues."""


@_kernel_only
def s_waitcnt(vmcnt: int | None = None, lgkmcnt: int | None = None) -> None:
    """Wait until at most `vmcnt` of the wave's loads to LDS are unfinished, and, with `lgkmcnt=0`, none of its accesses
    to shared memory (gfx942)."""


@_kernel_only
def s_barrier() -> None:
    """Wait for all waves of the block (gfx942).

    Accesses that the last `s_waitcnt(lgkmcnt=0)` completed come before what other waves do after this barrier.
    """


@_kernel_only
def begin_turns() -> None:
    """Let the second half of the waves be one barrier behind the first half, up to `end_turns()` (gfx942).

    Between two barriers, one half does what comes before the barrier and the other half what comes after it: one loads,
    say, while the other multiplies. Barriers of both kinds count. Both calls stand in the kernel's own body, once."""


@_kernel_only
def end_turns() -> None:
    """Let the half of the waves that is behind catch up. See `begin_turns`."""


@_kernel_only
def s_setprio(priority: int) -> None:
    """Set the wave's priority, from 0 to 3 (gfx942)."""


@_kernel_only
def sched_barrier(mask: int = 0) -> None:
    """gfx942: the compiler moves no instructions past this point, except those of the kinds `mask`."""


@_kernel_only
def sched_group_barrier(mask: int, size: int, sync_id: int = 0) -> None:
    """Ask the compiler to place `size` instructions of the kinds `mask` here, in turns with other groups of `sync_id`
    (gfx942)."""


@_kernel_only
def tiled_mma(instruction: str, shape: Shape, warps: Shape) -> ProductLayouts:
    """Return the register layouts `.a`, `.b`, `.c` of an (M, N, K) product spread over (along M, along N) warps."""


@_kernel_only
def blocked(shape: Shape, order: Shape | None = None, vector: int = 1) -> Layout:
    """Return a register layout in which adjacent threads hold adjacent vectors of `vector` elements, along `order[0]`
    first."""


@_kernel_only
def fragment_layout(text: str) -> Layout:
    """Return a register layout from its notation."""


@_kernel_only
def layout(text: str) -> Layout:
    """Return a memory layout from its notation: `"(64,64):(64,1)"`."""


@_kernel_only
def swizzle(bits: int, base: int, shift: int) -> Layout:
    """CuTe's `Swizzle<bits, base, shift>` of element offsets, for `shared`."""


# ---------------------------------------------------------------------------- tags


@_kernel_only
def tag(x: Tile | View, function: Callable[..., Term]) -> None:
    """State the tag that each element of a tensor or tile carries."""


@_kernel_only
def assert_tags(condition: Callable[..., Scalar], where: Callable[..., Scalar] | None = None) -> None:
    """Assert a condition on tags at this point, for all values of the lambda's parameters for which `where` holds."""


@_kernel_only
def device_print(text: str, *values: Tile | Scalar) -> None:
    """Print a line for each element of each value from the running kernel: kernel, program, element, text and value."""


@_kernel_only
def device_assert(condition: Tile | Scalar, text: str = "") -> None:
    """Stop the running kernel with an error if an element of `condition` is false. Proofs do not use the condition."""


@_kernel_only
def once(lo: Scalar, hi: Scalar) -> Term:
    """Return a value for `assert_tags`: the set that contains every integer of [lo, hi) exactly once."""


@_kernel_only
def spec(output: View, function: Callable[..., Term]) -> None:
    """Specify the kernel's result: `output[i, ...]` is the lambda's value, for every element."""


@_kernel_only
def softmax(score: Callable[..., Term]) -> Term:
    """Return a term for `spec`: `al.softmax(lambda k: score)[n]` is exp(score) at n divided by the sum of exp(score)
    over all k.

    A score of -inf, such as a mask gives with `al.where`, has weight 0, even if all scores are -inf.
    """


@_kernel_only
def logsumexp(score: Callable[..., Term]) -> Term:
    """Return a term for `spec`: `al.logsumexp(lambda k: score)` is the logarithm of the sum of exp(score) over all k.
    """


# ---------------------------------------------------------------------------- programs


@_kernel_only
def empty(shape: tuple[Scalar, ...], dtype: DType) -> View:
    """Declare a buffer of a program. The buffer is contiguous and uninitialised."""


@_kernel_only
def stream() -> Stream:
    """Declare a stream of a program. `s.record()` returns an event, and `s.wait(event)` makes later work of `s` wait
    for it."""


@_kernel_only
def current_stream() -> Stream:
    """Return the stream on which a program is called."""


@_kernel_only
def collective(
    name: str, reads: tuple[View, ...] = (), writes: tuple[View, ...] = (), *, stream: Stream | None = None
) -> None:
    """Call a function that the program does not define, such as an all-reduce. The caller passes a function for `name`.
    """
