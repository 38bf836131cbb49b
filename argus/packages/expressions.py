"""Host expressions in C: sizes in 64 bits with checked arithmetic, conditions, and numbers."""

from __future__ import annotations

import ctypes
import re

from argus.ir.expr import Const, Expr, LoopVar, Op, Param

_CHECKED = {"add": "argus_add", "sub": "argus_sub", "mul": "argus_mul", "floordiv": "argus_floordiv",
            "mod": "argus_mod", "shl": "argus_shl"}  # fmt: skip
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOATS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_MATH = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt", "sin", "cos", "tanh", "erf", "floor", "ceil"}
)


class NotInC(Exception):
    """The generated code cannot compute an expression. The message names the operation."""


def identifier(name: str) -> str:
    """Return the C name of a size, stride or counter. Different names give different identifiers."""
    return "s_" + re.sub(r"\W|_(?=[0-9a-f]+_)", lambda found: f"_{ord(found.group()):x}_", name)


def in_c(expr: Expr) -> str:
    """Return an expression in C. `c` is the C variable of the call. Integers are int64_t, floats double, and conditions
    int."""
    match expr:
        case Const(value=value, dtype=dtype) if dtype.is_float:
            return _number(ctypes.c_float(value).value)
        case Const(value=value):
            return str(int(value)) if abs(int(value)) < 2**31 else f"INT64_C({int(value)})"
        case Param(name=name) | LoopVar(name=name):
            return identifier(name)
        case Op(dtype=dtype) if dtype.modular:
            raise NotInC("arithmetic modulo 2^32")
        case Op(op="cast", args=(inner,), dtype=dtype):
            return f"({'double' if dtype.is_float else 'int64_t'})({in_c(inner)})"
        case Op(op="not", args=(inner,)) if inner.dtype.kind == "bool":
            return f"!({in_c(inner)})"
        case Op(op="where", args=(cond, x, y)):
            return f"(({in_c(cond)}) ? {in_c(x)} : {in_c(y)})"
        case Op(op=op, args=(x, y)) if op in _COMPARED:
            return f"({in_c(x)} {_COMPARED[op]} {in_c(y)})"
        case Op(op=op, args=args):
            return _operation(op, expr.dtype.is_float, tuple(map(in_c, args)))
        case _:
            raise NotInC(f"{type(expr).__name__} has no value on the host")


def _operation(op: str, floats: bool, args: tuple[str, ...]) -> str:
    listed = ", ".join(args)
    if floats and op in _FLOATS:
        return f"({args[0]} {_FLOATS[op]} {args[1]})"
    if floats and op in _MATH:
        return f"{op}({listed})"
    if floats and op in ("minimum", "maximum"):
        return f"{'fmin' if op == 'minimum' else 'fmax'}({listed})"
    if op in _CHECKED and not floats:
        return f"{_CHECKED[op]}(c, {listed})"
    if op in ("minimum", "maximum"):
        return f"argus_{op[:3]}({listed})"
    if op in _BITS:
        return f"({args[0]} {_BITS[op]} {args[1]})"
    if op == "neg":
        return f"(-{args[0]})" if floats else f"argus_sub(c, 0, {args[0]})"
    if op == "shr":
        return f"({args[0]} >> {args[1]})"
    if op == "abs":
        return f"fabs({listed})" if floats else f"llabs({listed})"
    raise NotInC(f"`{op}`")


def _number(value: float) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return float(value).hex()
