"""Names of Python, PyTorch, NumPy, Triton and CuTe that the language does not have, each with its replacement."""

from __future__ import annotations

PYTHON = {
    "list": "a tuple",
    "print": "`al.device_print`",
    "sum": "`al.sum`",
    "enumerate": "`range`",
    "zip": "`range`",
}
LANGUAGES = ("tl", "ct", "cute")
"""Names under which other languages of kernels are imported."""
LIBRARIES = ("np", "numpy", "torch", "math", "triton", "F", "nn", "jnp", "cp")
FUNCTIONS = {
    **dict.fromkeys(("float64", "double"), "kernels compute in `al.float32` at most: convert tensors first"),
    "zeros_like": "write `al.zeros(x.shape, x.dtype)`",
    "full_like": "write `al.full(x.shape, value, x.dtype)`",
    "rand": "pass a tensor of random numbers, or compute them with `al.uint32` as examples/dropout.py does",
    "randn": "pass a tensor of random numbers, or compute them with `al.uint32` as examples/dropout.py does",
    "any": "write `al.max(al.where(condition, 1, 0), axis) > 0`",
    "all": "write `al.min(al.where(condition, 1, 0), axis) > 0`",
    "argsort": "sort outside of the kernel, and pass the order as an index tensor",
    "silu": "write `x * al.sigmoid(x)`",
    "gelu": "write `0.5 * x * (1.0 + al.erf(x * 0.70710678))`",
    "softplus": "write `al.maximum(x, 0.0) + al.log(1.0 + al.exp(-al.abs(x)))`",
    "reciprocal": "write `1.0 / x`",
    "square": "write `x * x`",
    "cat": "store each part to its own slice of the output",
    "dot": "write `acc = al.mma(a, b, acc)`, with `b` as (N, K)",
    "matmul": "write `acc = al.mma(a, b, acc)`, with `b` as (N, K)",
    "relu": "write `al.maximum(x, 0.0)`",
    "clamp": "write `al.minimum(al.maximum(x, lo), hi)`",
    "mean": "divide `al.sum(x, axis)` by how many there are",
    **dict.fromkeys(
        ("scan", "cummax", "cummin"),
        "write `al.associative_scan(x, axis, combine)`, with an `@argus.func` of what comes before and what comes next",
    ),
    "cast": "write `x.to(al.float32)`",
    **dict.fromkeys(("libdevice", "math"), "write the function itself: `al.exp(x)`"),
    **dict.fromkeys(("fdiv", "div_rn"), "write `x / y`"),
    "sqrt_rn": "write `al.sqrt(x)`",
    "reduce": "write `al.sum(x, axis)`, `al.max(x, axis)` or `al.min(x, axis)`",
    **dict.fromkeys(("view", "ravel"), "write `al.reshape(x, shape)`"),
    "flip": "load the elements in the other order: `x[N - 1 - i]`",
    "histogram": "count with `al.atomic_add(counts[x], 1)`, where `counts` is a tensor of al.int32",
    "inline_asm_elementwise": "use the functions of the language: what assembly does cannot be proved",
    **dict.fromkeys(
        ("multiple_of", "max_contiguous", "max_constancy"),
        "leave it out: alignment is read off the arguments, and checked at each call",
    ),
    "static_print": "print what the compiler made with `argus show FILE::KERNEL`",
    "static_assert": 'write `assert condition, "message"`, on constants',
    **dict.fromkeys(
        ("randint", "philox", "randint4x"), "compute it with `al.uint32`, as examples/dropout.py does"
    ),
    "swizzle2d": "write `al.grid(rows, columns, group=8)`",
    "broadcast": "write `x[:, None] + y[None, :]`: tiles broadcast by themselves",
    **dict.fromkeys(("atomic_cas", "atomic_xchg"), "use `al.atomic_add`, `al.atomic_max` or `al.atomic_min`"),
    **dict.fromkeys(
        ("make_tensor", "local_tile", "make_tensor_descriptor", "advance"),
        "slice the tensor: `a[m0 : m0 + BLOCK, k0 : k0 + BLOCK]`, with `boundary_check`",
    ),
    "make_layout": 'write `al.layout("(4,8):(8,1)")`',
    "gemm": "write `acc = al.mma(a, b, acc)`, with `b` as (N, K)",
    "arch": "write `al.thread_id()`, `al.program_id(axis)`, `al.barrier()`",
    "size": "write `x.shape[0]`",
    "xor_sum": "xor the tile with itself moved between lanes: `x ^ al.shuffle_xor(x, mask)`",
    "range": "write `range(lo, hi)`, or `al.pipelined(lo, hi, step)` for a loop that stages its tiles",
    "gather": "index a tensor by a tile: `al.load(x[index])`",
    "expand_dims": "write `x[:, None]`",
    "broadcast_to": "write `x[:, None]`: tiles broadcast by themselves",
    "ones": "write `al.full(shape, 1.0, dtype)`",
    "pow": "write `x * x`, or `al.exp2(al.log2(x) * y)`",
    "make_block_ptr": "slice the tensor: `a[m0 : m0 + BLOCK, k0 : k0 + BLOCK]`, with `boundary_check`",
    "syncthreads": "write `al.barrier()`",
    "debug_barrier": "write `al.barrier()`",
    "program_ids": "write `al.program_id(axis)`, or `al.grid(...)`",
}
"""Replacements made of several functions of the language, by the names that other libraries use."""

ATTRIBUTES = {
    **dict.fromkeys(("astype", "float", "half", "cast", "type"), "write `x.to(al.float32)`"),
    **dict.fromkeys(("size", "value"), "write `x.shape[0]`; a size is a number already, by its name"),
    "numel": "multiply the extents: `x.shape[0] * x.shape[1]`",
    **dict.fromkeys(("dim", "ndim"), "write `len(x.shape)`"),
    **dict.fromkeys(("T", "mT", "t", "transpose"), "write `al.trans(x)`, or `al.permute(x, dims)`"),
    **dict.fromkeys(("view", "reshape", "flatten"), FUNCTIONS["view"]),
    **dict.fromkeys(("item", "data_ptr"), "load the element: `al.load(x[i])`"),
}
"""Replacements for attributes of tensors and tiles in other libraries."""

KEYWORDS = {
    "dim": "write `axis=`",
    **dict.fromkeys(("eviction_policy", "cache_modifier", "volatile"),
                    "leave it out; `al.stage(view, once=True)` says that nothing else reads these elements soon"),
    "padding_option": "write `other=0.0`",
    "return_indices": "call `al.argmax(x, axis)` or `al.argmin(x, axis)` as well",
    **dict.fromkeys(("num_stages", "num_warps"), "write `al.pipelined(..., stages=3)`, `@argus.kernel(num_warps=8)`"),
    **dict.fromkeys(("allow_tf32", "input_precision"), "convert both operands: `x.to(al.tfloat32)`"),
}  # fmt: skip
"""Replacements for keyword arguments of functions in other libraries."""

OF_CONSTANTS = {
    "len": "write `x.shape[0]`",
    "min": "write `al.minimum(x, y)`",
    "max": "write `al.maximum(x, y)`",
    "abs": "write `al.abs(x)`",
}
"""Replacements for Python's functions of constants when they are applied to other values."""
