"""The C functions of a package: one for each kernel and program, with the checks that a call from Python makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from argus.backend.cuda.tensormap import ARITHMETIC, BYTES
from argus.backend.launch.evaluate import show
from argus.backend.launch.signature import Signature, TensorParam
from argus.ir.expr import Const, Expr, Param
from argus.ir.types import DTYPES, DType
from argus.packages.expressions import identifier, in_c

SCALARS = {"int32": "int32_t", "int64": "int64_t", "uint32": "uint32_t", "float32": "float"}
_FLOAT8 = {"float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13}


def type_code(dtype: DType) -> int:
    """Return the code of an element type in DLPack 1.1."""
    if dtype.name in _FLOAT8:
        return _FLOAT8[dtype.name]
    if dtype.name == "bfloat16":
        return 4
    return {"int": 0, "uint": 1, "float": 2, "bool": 6}[dtype.kind]


def parameters(signature: Signature) -> str:
    """Return the parameters of a public function that come from the kernel or program."""
    given = [f"const DLTensor *{p.name}_" if isinstance(p, TensorParam) else f"{SCALARS[p.dtype]} {p.name}_"
             for p in signature.params]  # fmt: skip
    return ", ".join(["argus_package *package", *given])


def inner_parameters(signature: Signature) -> str:
    """Return the parameters of the function that checks and launches. It takes views instead of tensors."""
    given = [f"const argus_view *{p.name}_" if isinstance(p, TensorParam) else f"{SCALARS[p.dtype]} {p.name}_"
             for p in signature.params]  # fmt: skip
    return ", ".join(["argus_call *c", *given])


def viewed(signature: Signature) -> Iterator[str]:
    """Return the statements that make a view of each tensor of a public function."""
    for t in signature.tensors:
        dtype = DTYPES[t.dtype]
        yield f"argus_view v_{t.name};"
        yield (
            f'argus_tensor(&call, &v_{t.name}, {t.name}_, "{t.name}", {type_code(dtype)}, {dtype.bits}, '
            f"{len(t.shape)});"
        )


def passed(signature: Signature) -> str:
    """Return the arguments with which the public function calls the inner function."""
    return ", ".join(f"&v_{p.name}" if isinstance(p, TensorParam) else f"{p.name}_" for p in signature.params)


def checks(signature: Signature) -> Iterator[str]:
    """Return the statements that bind sizes, strides and scalars, and check every precondition of a call."""
    known: set[str] = set()
    for s in signature.scalars:
        known.add(s.name)
        kind = "double" if DTYPES[s.dtype].is_float else "int64_t"
        yield f"const {kind} {identifier(s.name)} = {s.name}_;"
    for t in signature.tensors:
        yield f'argus_extents(c, {t.name}_, "{t.name}");'
        for axis, declared in enumerate(t.shape):
            yield from _met(declared, f"{t.name}_->shape[{axis}]", t.name, axis, known)
        for axis, declared in enumerate(t.strides):
            if isinstance(declared, Param):
                yield from _met(declared, f"{t.name}_->strides[{axis}]", t.name, axis, known)
            else:
                yield f'argus_fixed_stride(c, {t.name}_, "{t.name}", {axis}, {in_c(declared)});'
    for t in signature.tensors:
        units = sum(1 << axis for axis, s in enumerate(t.strides) if isinstance(s, Const) and s.value == 1)
        yield f'argus_aligned(c, {t.name}_, "{t.name}", {t.itemsize}, {t.alignment}, {units});'
        if t.written:
            yield f'argus_injective(c, {t.name}_, "{t.name}");'
    yield "if (c->status) return c->status;"
    for condition in signature.conditions:
        yield f"argus_require(c, {in_c(condition.expr)}, {quoted(show(condition.expr))});"
    for a, b in combinations(signature.tensors, 2):
        if a.written or b.written:
            given = (f'{t.name}_, {t.itemsize}, "{t.name}"' for t in ((a, b) if a.written else (b, a)))
            yield f"argus_apart(c, {', '.join(given)});"
    for name in sorted(known):
        yield f"(void){identifier(name)};"


def _met(declared: Expr, actual: str, tensor: str, axis: int, known: set[str]) -> Iterator[str]:
    if isinstance(declared, Param) and declared.name not in known:
        known.add(declared.name)
        yield f"const int64_t {identifier(declared.name)} = {actual};"
        return
    what = declared.name if isinstance(declared, Param) else str(getattr(declared, "value", ""))
    yield f'argus_equal(c, "{what}", "{tensor}", {axis}, {actual}, {in_c(declared)});'


def launch(signature: Signature, number: int) -> str:
    """Return the C function that checks and launches kernel number `number`."""
    lines = [*checks(signature), "if (c->status) return c->status;"]
    slots = [s for s in signature.slots if s.kind != "tensormap"]
    values = []
    for s in slots:
        kind = {"pointer": "char *", "size": "int32_t", "stride": "int64_t"}.get(s.kind) or SCALARS[s.dtype]
        value = f"{s.name}_->data" if s.kind == "pointer" else identifier(s.name)
        lines.append(f"{kind} {_slot(s.name)} = ({kind}){value};")
        values.append(f"&{_slot(s.name)}")
    values += ["NULL"] * (len(signature.slots) - len(slots))
    lines.append(f"void *arguments[] = {{{', '.join(values) or 'NULL'}}};")
    grid = [in_c(e) for e in signature.grid or ()]
    if len(grid) > 3:  # In a flat kernel, one axis of the hardware counts all programs.
        product = grid[0]
        for extent in grid[1:]:
            product = f"argus_mul(c, {product}, {extent})"
        grid = [product]
    lines.append(f"const int64_t grid[3] = {{{', '.join([*grid, '1', '1'][:3])}}};")
    flat = int(signature.flat or signature.persistent)
    lines += _maps(signature)
    maps = "maps" if signature.maps else "NULL"
    lines.append(
        f"return argus_launch(c, {number}, grid, {flat}, arguments, {len(signature.slots)}, {maps}, "
        f"{len(signature.maps)});"
    )
    return function(f"static int launch_{number}({inner_parameters(signature)})", lines)


def _slot(name: str) -> str:
    return "a_" + identifier(name)


def _maps(signature: Signature) -> list[str]:
    if not signature.maps:
        return []
    made = []
    for m in signature.maps:
        dtype = DTYPES[next(t.dtype for t in signature.tensors if t.name == m.tensor)]
        box = ", ".join(map(str, m.box))
        code = ARITHMETIC.get(dtype.name, BYTES)
        places = () if m.pixels is None else (m.pixels.counts, m.pixels.strides, m.pixels.lower)
        pixels = "".join(f", {{{', '.join(map(str, numbers))}}}" for numbers in places or ((0,),) * 3)
        made.append(f"{{{m.tensor}_, {dtype.bytes}, {code}, {{{box}}}, {m.swizzle_bytes}{pixels}}}")
    return [f"const argus_map maps[] = {{{', '.join(made)}}};"]


def public_kernel(prefix: str, signature: Signature, number: int) -> tuple[str, str]:
    """Return the declaration and the definition of a kernel's public function."""
    head = f"int {prefix}_{signature.name}({parameters(signature)}, void *stream, char *message, size_t size)"
    lines = [
        "argus_call call = argus_begin(package, stream, message, size);",
        *viewed(signature),
        f"if (!call.status) launch_{number}(&call, {passed(signature)});",
        "return call.status;",
    ]
    return head + ";", function(head, lines)


def function(head: str, lines: Sequence[str]) -> str:
    """Return the text of a C function."""
    return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])


def quoted(text: str) -> str:
    """Return a C string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
