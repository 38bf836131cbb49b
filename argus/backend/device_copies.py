"""Device functions that move data between memory and registers, or from global to shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from argus.backend.device_function import ALL, AMD, GLOBAL, NVIDIA, SHARED, Function
from argus.backend.device_function import function as _f
from argus.ir.instruction import INSTRUCTIONS, Ends, Mechanism


def _moves() -> Iterator[Function]:
    """Yield the functions of instructions by which each thread moves its own whole vectors, one set for each `call`."""
    found = [r for r in INSTRUCTIONS.values() if r.mechanism is Mechanism.THREADS and r.ends is Ends.WHOLE]
    for name in dict.fromkeys(r.call for r in found if not r.peer and r.call != "atomic"):
        rows = [r for r in found if r.call == name]
        served = " ".join(r.name for r in rows)
        hip = ["gfx942" in r.architectures for r in rows]
        targets = AMD if all(hip) else ALL if any(hip) else NVIDIA
        plain = next(r.call for r in found if not r.peer and (r.src, r.dst) == (rows[0].src, rows[0].dst))
        like = "" if plain == name else plain
        inside, load = "shared" in (rows[0].src, rows[0].dst), not rows[0].writes_memory
        vectors, cell = "int N, class T", SHARED if inside else GLOBAL if load else "T* base, i64 offset"
        registers, place = "T* dst" if load else "const T* src", "smem + offset" if inside else "base[offset..]"
        what = f"dst[0..N) from {place}" if load else f"src[0..N) to {place}"
        yield _f(name, vectors, "void", f"{cell}, {registers}", what, served, targets, like=like)
        if inside:
            continue
        otherwise, masked = "dst keeps its values and nothing is read", f"bool p, {cell}, {registers}"
        otherwise = otherwise if load else "nothing is written"
        same = f"the same where p; else {otherwise}"
        yield _f(f"{name}_if", vectors, "void", masked, same, served, targets, like=like and f"{like}_if")
        if load:
            masked += ", T other"
            same = "the same where p; else every dst[i] = other and nothing is read"
            yield _f(f"{name}_or", vectors, "void", masked, same, served, targets, like=like and f"{like}_or")


COPIES: tuple[Function, ...] = (
    *_moves(),
    _f("is_amid", "int N", "bool", "bool p, int at, int end",
       "whether not p, or elements at to at + 2 N - 1 come before `end`", "", NVIDIA),
    _f("load_words_amid", "int N, class T", "void", f"bool p, {GLOBAL}, Words& to",
       "begins to load N elements, 16 bytes, from base[offset] on where p, zeros elsewhere; N more follow in memory, "
       "and the address is a multiple of sizeof(T) alone", "ld.global.unaligned", NVIDIA),
    _f("load_words", "int N, class T", "void", f"bool p, int at, int end, {GLOBAL}, Words& to",
       "the same of those elements with at + i < end, whatever follows", "ld.global.unaligned", NVIDIA),
    _f("shift_into_place", "int N, class T", "void", "const Words& from, T* dst",
       "dst[0..N) = the elements that were loaded", "", NVIDIA),
    _f("is_aligned", "int N, class T", "bool", GLOBAL, "whether the address is a multiple of N elements", "", NVIDIA),
    _f("has_ends", "int N", "bool", "bool p, int at, int start, int end",
       "whether p, and start <= at + i < end for some i in [0, N), but not for all", "", NVIDIA),
    _f("load_global_whole", "int N, class T", "void",
       f"bool p, int at, int start, int end, {GLOBAL}, T* dst, T other",
       "dst[0..N) = base[offset..] where p, start <= at and at + N <= end; else every dst[i] = other and nothing is "
       "read; the address is aligned to N elements", "ld.global.cut", NVIDIA),
    _f("load_global_each", "int N, class T", "void", f"bool p, int at, int start, int end, {GLOBAL}, T* dst, T other",
       "dst[i] = base[offset + i] where p and start <= at + i < end, whatever the address is, else other",
       "ld.global.cut", NVIDIA),
    _f("put", "int N, class T", "void", "const T* src, T* dst", "dst[0..N) = src[0..N), registers", "", NVIDIA),
    _f("store_global_cut", "int N, class T", "void",
       "bool p, int at, int start, int end, T* base, i64 offset, const T* src",
       "base[offset + i] = src[i] where p and start <= at + i < end", "st.global.cut", NVIDIA),
    _f("cp_async", "int BYTES, class T", "void", f"{SHARED}, const T* base, i64 source",
       "starts copying BYTES (4, 8, 16) from base + source (elements) to smem + offset; part of the thread's "
       "current group", "cp.async", NVIDIA),
    _f("cp_async_or_zero", "int BYTES, class T", "void", f"{SHARED}, const T* base, i64 source, bool p",
       "the same where p; else writes zeros and reads nothing", "cp.async", NVIDIA),
    _f("cp_async_commit", "", "void", "", "closes the thread's current group", "cp.async", NVIDIA),
    _f("cp_async_wait", "int PENDING", "void", "",
       "waits until at most PENDING of the thread's latest groups are unfinished", "cp.async", NVIDIA),
    *(
        _f(f"ldmatrix_x{n}{trans}", "class T", "void", f"{SHARED}, T* dst",
           f"{n} matrices of 8 rows of 16 bytes{', transposed as 16-bit elements' if trans else ''}; lane "
           "8 * i + r gives the address of row r of matrix i; dst gets 4 bytes of matrix i after i * 4 bytes",
           "ldmatrix.trans" if trans else "ldmatrix", NVIDIA, True)
        for n in (1, 2, 4) for trans in ("", "_trans")
    ),
    *(
        _f(f"stmatrix_x{n}", "class T", "void", f"{SHARED}, const T* src",
           f"the inverse of ldmatrix_x{n}; sm_90 and later", "stmatrix", NVIDIA, True)
        for n in (1, 2, 4)
    ),
)  # fmt: skip
