"""Emitted-style text that uses every function of the device library, for the compile tests of all targets."""

from __future__ import annotations

from collections.abc import Sequence

from argus.backend.device_api import TYPES, cpp_type, functions, mma_function, wgmma_function
from argus.ir.expr import OPERATORS
from argus.ir.instruction import INSTRUCTIONS, MMA, WGMMA, Ends, Mechanism

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "uint16", "uint32", "int32", "int64")
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
UNARY = tuple(row.name for row in OPERATORS.values() if row.function is not None and row.takes == "floats")


UPDATES = {
    "add": ("float32", "float16", "bfloat16", "int32"),
    "minimum": ("float16", "bfloat16", "int32", "int64"),
    "maximum": ("float16", "bfloat16", "int32", "int64"),
}
"""Atomic updates of boxes, and the types that they take."""

WIDTHS = (1, 2, 4, 8, 16)
"""Bytes that one access moves."""

PIXELS = ("t, 1, 2, 3", "t, 1, 2, 3, 4, 5", "t, 1, 2, 3, 4, 5, 6, 7")
"""Coordinates of pixels of 1 to 3 dimensions, and offsets."""

CORNERS = ("t, 1", "t, 1, 2", "t, 1, 2, 3", "t, 1, 2, 3, 4")
"""Coordinates of boxes of 2 to 5 dimensions."""


def kernel(name: str, parameters: str, body: list[str], shared: int = 0) -> str:
    """One entry point; `t` is the thread's index."""
    head = [f"ARGUS_SHARED(smem, {shared});"] if shared else []
    lines = "\n".join(f"    {line}" for line in [*head, "const int t = argus::thread_id();", *body])
    return f"ARGUS_KERNEL({name}, 128)({parameters}) {{\n{lines}\n}}\n"


def pointers(*types: str) -> str:
    return ", ".join(f"{cpp_type_of(t)}* ARGUS_RESTRICT p{i}" for i, t in enumerate(types))


def cpp_type_of(name: str) -> str:
    return TYPES[name].removeprefix("const ")


def loads(target: str, architectures: Sequence[str]) -> list[str]:
    """The device functions of plain loads from global memory, variants of the first among them."""
    rows = [r for r in INSTRUCTIONS.values() if r.mechanism is Mechanism.THREADS and r.ends is Ends.WHOLE]
    calls = [r.call for r in rows if r.src == "global" and set(r.architectures) & set(architectures)]
    return [name for name in dict.fromkeys(calls) if any(f.name == name for f in functions(target))]


def alike(name: str) -> list[str]:
    """A function, and those that differ from it in speed alone."""
    return [f.name for f in functions("cuda") if name in (f.name, f.like)]


def copies(target: str, architectures: Sequence[str]) -> str:
    """Global and shared accesses of every size, guarded and not."""
    kernels = []
    sizes = {"int8": (1, 2, 4, 8, 16), "bfloat16": (1, 2, 4, 8), "float32": (1, 2, 4), "int64": (1, 2)}
    for name, widths in sizes.items():
        for n in widths:
            cpp = TYPES[name]
            offset = f"argus::i64(t) * {n}"
            body = [
                f"alignas(16) {cpp} x[{n}], y[{n}], z[{n}];",
                f"for (int i = 0; i < {n}; ++i) x[i] = y[i] = a[i];",
                *(
                    line
                    for name in loads(target, architectures)
                    for line in (
                        f"argus::{name}<{n}>(a, {offset}, x);",
                        f"argus::{name}_if<{n}>(p > t, a, {offset} + 4096, y);",
                        f"argus::{name}_or<{n}>(p > t, a, {offset} + 8192, z, x[0]);",
                    )
                ),
                f"argus::store_shared<{n}>(smem, t * 16, y);",
                "argus::barrier();",
                f"argus::load_shared<{n}>(smem, (t ^ 1) * 16, x);",
                f"argus::store_global<{n}>(b, {offset}, x);",
                f"argus::store_global_if<{n}>(p > t, b, {offset} + 4096, z);",
            ]
            parameters = f"const {cpp}* ARGUS_RESTRICT a, {cpp}* ARGUS_RESTRICT b, int p"
            kernels.append(kernel(f"copies_{name}_{n}", parameters, body, 4096))
    return "\n".join(kernels)


def ids() -> str:
    body = [
        "argus::launch_dependents();",
        "argus::begin();",
        "b[t] = argus::block_id<0>() + argus::block_id<1>() * 3 + argus::block_id<2>() * 5 + ARGUS_WARP_SIZE;",
        "const auto [row, column] = argus::grouped_block_ids<8>(b[128], b[129]);",
        "const auto [x, y] = argus::grouped_program<8>(b[130], b[128], b[129]);",
        "b[t + 256] = row * 7 + column;",
    ]
    return kernel("ids", "int* ARGUS_RESTRICT b", body)


def watches(target: str) -> str:
    """Prints and assertions on the device."""
    printed = ['if (x[t] < 0) argus::print("element %d = %g\\n", t, static_cast<double>(x[t]));']
    body = [*(printed if target != "hip" else []), 'if (x[t] > 1e6f) argus::fail("element %d", t);', "y[t] = x[t];"]
    return kernel("watches", "const float* ARGUS_RESTRICT x, float* ARGUS_RESTRICT y", body)


def unaligned() -> str:
    """Vectors that begin anywhere."""
    kernels = []
    for name, n in (("uint8", 16), ("bfloat16", 8), ("float32", 4)):
        cpp = TYPES[name]
        body = [
            f"alignas(16) {cpp} x[{n}];",
            "argus::Words words[1];",
            f"if (argus::is_amid<{n}>(p > t, t * {n}, q))",
            f"    argus::load_words_amid<{n}>(p > t, a, argus::i64(t) * {n}, words[0]);",
            f"else argus::load_words<{n}>(p > t, t * {n}, q, a, argus::i64(t) * {n} + p, words[0]);",
            f"argus::shift_into_place<{n}>(words[0], x);",
            f"argus::store_global<{n}>(b, argus::i64(t) * {n}, x);",
        ]
        parameters = f"const {cpp}* ARGUS_RESTRICT a, {cpp}* ARGUS_RESTRICT b, int p, int q"
        kernels.append(kernel(f"unaligned_{name}", parameters, body))
    return "\n".join(kernels)


def cut() -> str:
    """Vectors of which a mask leaves a part."""
    kernels = []
    for name, n in (("uint8", 16), ("bfloat16", 8), ("float32", 4)):
        cpp = TYPES[name]
        body = [
            f"alignas(16) {cpp} x[{n}], ends[{n}];",
            f"if (argus::is_aligned<{n}>(a, argus::i64(t) * {n} + p))",
            f"    argus::load_global_whole<{n}>(p > t, t * {n}, p, q, a, argus::i64(t) * {n} + p, x, a[0]);",
            f"else argus::load_global_each<{n}>(p > t, t * {n}, p, q, a, argus::i64(t) * {n} + p, x, a[0]);",
            f"if (argus::has_ends<{n}>(p > t, t * {n}, p, q)) {{",
            f"    argus::load_global_each<{n}>(p > t, t * {n}, p, q, a, argus::i64(t) * {n} + p, ends, a[0]);",
            f"    argus::put<{n}>(ends, x);",
            "}",
            f"argus::store_global_cut<{n}>(p > t, t * {n}, p, q, b, argus::i64(t) * {n} + q, x);",
        ]
        parameters = f"const {cpp}* ARGUS_RESTRICT a, {cpp}* ARGUS_RESTRICT b, int p, int q"
        kernels.append(kernel(f"cut_{name}", parameters, body))
    return "\n".join(kernels)


def asynchronous() -> str:
    body = [
        *(f"argus::cp_async<{n}>(smem, t * 16, a, argus::i64(t) * 4);" for n in (4, 8, 16)),
        *(f"argus::cp_async_or_zero<{n}>(smem, 2048 + t * 16, a, argus::i64(t) * 4, p > t);" for n in (4, 8, 16)),
        "argus::cp_async_commit();",
        "argus::cp_async_wait<1>();",
        "argus::cp_async_wait<0>();",
        "argus::barrier();",
        "alignas(16) float x[4];",
        "argus::load_shared<4>(smem, (t ^ 5) * 16, x);",
        "argus::store_global<4>(b, t * 4, x);",
    ]
    parameters = "const float* ARGUS_RESTRICT a, float* ARGUS_RESTRICT b, int p"
    return kernel("asynchronous", parameters, body, 8192)


def waves() -> str:
    body = [
        "argus::load_to_lds(smem, t * 4, a, argus::i64(t) * 3);",
        "argus::load_to_lds_or_zero(smem, 2048 + t * 4, a, argus::i64(t) * 5, p > t);",
        "argus::load_near_to_lds(smem, 4096 + t * 4, a, argus::i64(t) * 3);",
        "argus::load_near_to_lds_or_zero(smem, 6144 + t * 4, a, argus::i64(t) * 5, p > t);",
        "argus::wave_priority<2>();",
        "argus::sched_group<8, 2, 0>();",
        "argus::sched_kinds<900>();",
        "argus::wait_counts<1, -1>();",
        "argus::wait_counts<-1, 0>();",
        "argus::wait_counts<0, 0>();",
        "argus::wave_barrier();",
        "argus::wave_barrier_from<64>();",
        "argus::wave_barrier_below<64>();",
        "alignas(16) float x[1];",
        "argus::load_shared<1>(smem, argus::place((t ^ 65) * 4, 0), x);",
        "x[0] = argus::maximum_of<1>(argus::minimum_of<1>(x[0], x), x);",
        "x[0] = argus::maximum_of_numbers<1>(argus::minimum_of_numbers<1>(x[0], x), x);",
        "x[0] = argus::sum_of<1>(x[0], x);",
        "alignas(16) argus::bf16 narrowed[2];",
        "float wide[2] = {x[0], x[0]};",
        "argus::narrow_numbers<2>(wide, narrowed);",
        "argus::narrow_moderate<2>(wide, narrowed);",
        "x[0] = argus::maximum_of_two(argus::minimum_of_two(x[0], wide[0]), x[0]);",
        "x[0] = argus::cast<float>(narrowed[1]);",
        "alignas(16) float sums[3] = {x[0], x[0], x[0]}, factors[3] = {1.0f, 2.0f, 3.0f};",
        "argus::add_products<3>(sums, factors, factors);",
        "x[0] = sums[2];",
        "alignas(16) argus::e4m3fn eights[4] = {argus::cast<argus::e4m3fn>(x[0])};",
        "alignas(16) argus::e4m3fnuz halves[4];",
        "argus::halve<4>(eights, halves);",
        "argus::halve<3>(eights, halves);",
        "x[0] += argus::cast<float>(halves[0]);",
        "argus::store_global<1>(b, t, x);",
    ]
    parameters = "const float* ARGUS_RESTRICT a, float* ARGUS_RESTRICT b, int p"
    return kernel("waves", parameters, body, 4096)


def matrices(store: bool) -> str:
    """ldmatrix of every form, and stmatrix where the architecture has it."""
    body = ["alignas(16) argus::bf16 x[8], y[8];"]
    for n in (1, 2, 4):
        for at, trans in enumerate(("", "_trans")):
            body += [
                f"argus::ldmatrix_x{n}{trans}(smem, t * 16, x);",
                f"argus::store_global<{2 * n}>(b, {(2 * n + at) * 1024} + t * 8, x);",
            ]
        if store:
            body += [f"argus::load_global<{2 * n}>(b, t * 8, y);", f"argus::stmatrix_x{n}(smem, t * 16, y);"]
    return kernel("matrices", "argus::bf16* ARGUS_RESTRICT b", body, 4096)


def products(architectures: tuple[str, ...]) -> str:
    """Every matrix instruction of `architectures`, with every pair of operand types it takes."""
    kernels = []
    for row in MMA.values():
        if not set(row.architectures) & set(architectures):
            continue
        function = mma_function(row).name
        mixed = "fp8" in row.name
        pairs = [(a, b) for a in row.operands for b in row.operands if a == b or mixed]
        for a, b in pairs:
            na, nb, nd = row.a.num_values, row.b.num_values, row.c.num_values
            d = cpp_type(row.accumulator)
            body = [
                f"alignas(16) {cpp_type(a)} x[{na}];",
                f"alignas(16) {cpp_type(b)} y[{nb}];",
                f"alignas(16) {d} z[{nd}] = {{}};",
                f"for (int i = 0; i < {na}; ++i) x[i] = a[t * {na} + i];",
                f"for (int i = 0; i < {nb}; ++i) y[i] = b[t * {nb} + i];",
                f"argus::{function}(z, x, y);",
                f"for (int i = 0; i < {nd}; ++i) d[t * {nd} + i] = z[i];",
            ]
            types = (f"const {cpp_type(a)}* a", f"const {cpp_type(b)}* b", f"{d}* d")
            parameters = ", ".join(t.replace("* ", "* ARGUS_RESTRICT ") for t in types)
            kernels.append(kernel(f"{function}_{a.name}_{b.name}", parameters, body))
    return "\n".join(kernels)


def hopper() -> str:
    """mbarriers, bulk copies of every rank, asynchronous products of every width and type, roles; to be compiled."""
    body = [
        "argus::tma_prefetch(map);",
        "if (t == 0) {",
        "    argus::mbarrier_init(smem, 0, 1);",
        "    argus::mbarrier_init_fence();",
        "}",
        "argus::barrier();",
        "if (argus::uniform(t / 32) == 0) {",
        "    argus::mbarrier_expect(smem, 0, 128);",
        *(f"    argus::{load}(smem, 1024, 0, map, {corner});" for load in alike("tma_load") for corner in CORNERS),
        *(f"    argus::tma_load_im2col(smem, 1024, 0, map, {corner});" for corner in PIXELS),
        *(f"    argus::{store}(smem, 1024, map, {corner});" for store in alike("tma_store") for corner in CORNERS),
        *(
            f"    argus::tma_reduce_{op}<{cpp_type_of(t)}>(smem, 1024, map, {corner});"
            for op, types in UPDATES.items()
            for t in types
            for corner in CORNERS
        ),
        "    argus::bulk_commit();",
        "    int again = t;",
        "    argus::anew(again);",
        "    for (int i = 0; i < 2; i = argus::next_program(i)) argus::bulk_wait<0>();",
        "    argus::bulk_wait<1>();",
        "    argus::bulk_wait_read<0>();",
        "}",
        "argus::mbarrier_wait(smem, 0, 0);",
        "argus::async_fence();",
        "argus::mbarrier_arrive(smem, 0);",
        "argus::role_barrier<128>(3);",
        "argus::role_barrier_arrive<128>(4);",
        "argus::raise_registers<240>();",
        "argus::lower_registers<40>();",
    ]
    parameters = "ARGUS_GRID_CONSTANT argus::TensorMap map"
    kernels = [kernel("bulk", parameters, body, 4096)]
    for row in WGMMA.values():
        for dtype in row.operands:
            values = row.c.num_values
            body = [
                "const argus::u64 a = argus::matrix_descriptor(smem, 0, 16);",
                "const argus::u64 b = argus::descriptor_at(argus::narrow_descriptor(smem, 8192), 2);",
                f"alignas(16) float d[{values}];",
                "argus::wgmma_forget(d);",
                f"for (int i = 0; i < {values}; ++i) d[i] = 0.0f;",
                "argus::wgmma_hold(d);",
                "argus::wgmma_fence();",
                f"argus::{wgmma_function(row).name}<{cpp_type(dtype)}, {cpp_type(dtype)}, 0, 0>(d, a, b, true);",
                "argus::wgmma_commit();",
                "argus::wgmma_beside();",
                "argus::wgmma_wait<0>();",
                "argus::wgmma_hold(d);",
                f"for (int i = 0; i < {values}; ++i) to[t * {values} + i] = d[i];",
            ]
            kernels.append(kernel(f"{row.name}_{dtype.name}", "float* ARGUS_RESTRICT to", body, 65536))
    return "\n".join(kernels)


def exchanges() -> str:
    """Shuffles of every type, atomics of the types that have them."""
    kernels = []
    for name, cpp in TYPES.items():
        body = [f"{cpp} x = a[t];", "x = argus::shuffle(x, (t + 1) % ARGUS_WARP_SIZE);"]
        body += [f"x = argus::shuffle_xor(x, {1 << i});" for i in range(5)] + ["b[t] = x;"]
        kernels.append(kernel(f"exchanges_{name}", f"const {cpp}* ARGUS_RESTRICT a, {cpp}* ARGUS_RESTRICT b", body))
    for name in ("float32", "int32", "int64"):
        cpp = TYPES[name]
        body = [f"argus::atomic_{op}(b, t % 8, a[t]);" for op in ("add", "maximum", "minimum")]
        kernels.append(kernel(f"atomics_{name}", f"const {cpp}* ARGUS_RESTRICT a, {cpp}* ARGUS_RESTRICT b", body))
    return "\n".join(kernels)


def casts() -> str:
    """Every type to every type."""
    kernels = []
    for name, cpp in TYPES.items():
        body = [f"b{i}[t] = argus::cast<{to}>(a[t]);" for i, to in enumerate(TYPES.values())]
        outputs = ", ".join(f"{to}* ARGUS_RESTRICT b{i}" for i, to in enumerate(TYPES.values()))
        kernels.append(kernel(f"casts_{name}", f"const {cpp}* ARGUS_RESTRICT a, {outputs}", body))
    for name in EIGHT_BITS:
        body = [
            f"alignas(16) {TYPES[name]} x[8];",
            "alignas(16) float wide[8];",
            "argus::load_global<4>(a, t * 8, &wide[0]);",
            "argus::load_global<4>(a, t * 8 + 4, &wide[4]);",
            "argus::narrow<8>(wide, x);",
            "argus::store_global<8>(b, t * 8, x);",
        ]
        parameters = f"const float* ARGUS_RESTRICT a, {TYPES[name]}* ARGUS_RESTRICT b"
        kernels.append(kernel(f"narrow_{name}", parameters, body))
    for name in (*EIGHT_BITS, "int8"):
        for wide in ("bfloat16", "float16"):
            body = [
                f"alignas(16) {TYPES[name]} x[8];",
                f"alignas(16) {TYPES[wide]} y[8];",
                "argus::load_global<8>(a, t * 8, x);",
                "argus::widen<8>(x, y);",
                "argus::store_global<8>(b, t * 8, y);",
            ]
            parameters = f"const {TYPES[name]}* ARGUS_RESTRICT a, {TYPES[wide]}* ARGUS_RESTRICT b"
            kernels.append(kernel(f"widen_{name}_{wide}", parameters, body))
    for name in ("bfloat16", "float16"):
        for most in (15, 255):
            body = [
                f"alignas(16) {TYPES[name]} x[8];",
                "alignas(16) unsigned words[8];",
                "argus::load_global<4>(a, t * 8, &words[0]);",
                "argus::load_global<4>(a, t * 8 + 4, &words[4]);",
                f"const {TYPES[name]} less = argus::cast<{TYPES[name]}>(static_cast<int>(words[4]));",
                *(
                    f"argus::fractions<{most}>(words[{i}], {place}, less, &x[{2 * i}]);"
                    for i, place in enumerate((0, 4, 8, 7))
                ),
                "argus::store_global<8>(b, t * 8, x);",
            ]
            parameters = f"const unsigned* ARGUS_RESTRICT a, {TYPES[name]}* ARGUS_RESTRICT b"
            kernels.append(kernel(f"fractions_{name}_{most}", parameters, body))
    body = ["alignas(16) int x[4];", "argus::load_global<4>(a, t * 4, x);"]
    body += ["b[t] = argus::largest_below<4>(x[0], x[1], x);"]
    kernels.append(kernel("largest_below", "const int* ARGUS_RESTRICT a, int* ARGUS_RESTRICT b", body))
    body = ["bool x[4];", "argus::load_global<4>(a, t * 4, x);", "argus::truths<4>(x);"]
    body += ["argus::store_global<4>(b, t * 4, x);"]
    kernels.append(kernel("truths", "const bool* ARGUS_RESTRICT a, bool* ARGUS_RESTRICT b", body))
    return "\n".join(kernels)


def arithmetic() -> str:
    """Elementwise functions and operators."""
    kernels = []
    for name in (*FLOATS, *INTEGERS):
        cpp = TYPES[name]
        results = [
            "argus::where(x < y, x, y)",
            "argus::minimum(x, y)",
            "argus::maximum(x, y)",
            "argus::absolute(x)",
            "argus::floordiv(x, y)",
            "argus::floormod(x, y)",
        ]
        if name in FLOATS:
            results += [f"argus::{f}(x)" for f in UNARY]
            results += ["x + y", "x - y", "x * y", "x / y", "-x"]
            results += ["argus::sortable<float>(argus::sortable<int>(x))"] if name == "float32" else []
            results += [f"argus::infinity<{cpp}>()", f"argus::not_a_number<{cpp}>()"]
            results += [f"argus::where(x {op} y, x, y)" for op in ("==", "!=", "<", "<=", ">", ">=")]
        else:
            results += [f"argus::{f}(x, y)" for f in ("add_wrap", "sub_wrap", "mul_wrap", "shl", "shr")]
            results += ["argus::neg_wrap(x)"]
            results += ["argus::umulhi(x, y)"] if name == "uint32" else []
        body = [f"const {cpp} x = a[t], y = b[t];"]
        body += [f"c[{i} * 128 + t] = {result};" for i, result in enumerate(results)]
        parameters = ", ".join(
            [
                f"const {cpp}* ARGUS_RESTRICT a",
                f"const {cpp}* ARGUS_RESTRICT b",
                f"{cpp}* ARGUS_RESTRICT c",
            ]
        )
        kernels.append(kernel(f"arithmetic_{name}", parameters, body))
    return "\n".join(kernels)


def clusters() -> str:
    """What reaches other blocks, which the host has none of: there a cluster is one block."""
    body = [
        "argus::cluster_barrier();",
        *(
            f"argus::{load}<{among}>(smem, 1024, 0, map, {corner});"
            for load in alike("tma_load_multicast")
            for among in ("2", "2, 2")
            for corner in CORNERS
        ),
        "argus::mbarrier_arrive_cluster<2>(smem, 0);",
        "argus::mbarrier_arrive_cluster<4>(smem, 0, argus::blocks_among<2, 1>() | argus::blocks_among<2, 2>());",
        "alignas(16) argus::i8 x[16];",
        *(f"argus::load_peer<{n}>(smem, t * 16, 1, x); argus::store_peer<{n}>(smem, t * 16, 1, x);" for n in WIDTHS),
    ]
    return kernel("cluster", "ARGUS_GRID_CONSTANT argus::TensorMap map", body, 4096)


def source(target: str, architectures: tuple[str, ...], host: bool = False, prints: bool = True) -> str:
    """All of it for one target: "cuda" or "hip", with the instruction-table keys of the architecture; for its compiler,
    or for the `host`'s. Without `prints` nothing takes a thread's stack, where the arguments of a print lie."""
    parts = [ids(), copies(target, architectures), exchanges(), casts(), arithmetic(), products(architectures)]
    parts += [watches(target)] if prints else []
    if target == "hip":
        parts.append(waves())
    if target == "cuda":
        parts += [asynchronous(), unaligned(), cut(), matrices(store="sm_90a" in architectures)]
        parts += [hopper()] if "sm_90a" in architectures else []
        parts += [clusters()] if "sm_90a" in architectures and not host else []
    return "\n".join(parts)
