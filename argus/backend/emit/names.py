"""Identifiers: every name of a kernel gets one C++ identifier that collides with nothing."""

from __future__ import annotations

import re

from argus.backend.abi import arguments
from argus.ir import visit
from argus.ir.nodes import For, Kernel

_RESERVED = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq argus thread smem value total warp program program_number
    program_row role_number aligned amid moved wide words
    asm EOF NULL INFINITY
    NAN HUGE_VAL OVERFLOW UNDERFLOW DOMAIN blockIdx threadIdx blockDim gridDim warpSize"""
_GENERATED = re.compile(r"[tvpr]\d+|block\d|cluster\d|argus_.*|_.*", re.IGNORECASE)


def identifiers(kernel: Kernel) -> dict[str, str]:
    """Return C++ identifiers for the kernel's arguments, shared tiles, fragments and loop counters, by their names.

    A name is kept if possible; `a.stride0` becomes `a_stride0`. A reserved word, a name of the form that the emitter
    uses for its own variables, and a repeated name get a suffix.
    """
    names = [a.name for a in arguments(kernel)]
    names += [s.name for s in kernel.shared] + [f.name for f in kernel.fragments]
    names += [name for s in visit.walk(kernel.body) if isinstance(s, For) for name in s.counters]
    result: dict[str, str] = {}
    taken = set(_RESERVED.split())
    for name in dict.fromkeys(names):
        spelled = re.sub(r"[\W_]+", "_", name)
        if _GENERATED.fullmatch(spelled):
            spelled = "x" + spelled
        stem, count = spelled.rstrip("_"), 1
        while spelled in taken:
            spelled = f"{stem}_" if count == 1 else f"{stem}_{count}"
            count += 1
        taken.add(spelled)
        result[name] = spelled
    return result
