"""Explicit kernels, drawn at random, that try the device functions in every place where they can stand: in each block
of a cluster, low and high in shared memory, for each dtype, width, rank and layout. With what they must give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.backend.abi import shared_bytes
from argus.ir.expr import op
from argus.ir.nodes import Barrier, Kernel
from argus.ir.text import parse_kernel
from argus.ir.types import DTYPES, DType
from argus.layout import FragmentLayout, Layout, Swizzle, SwizzledLayout, blocked, parse_fragment
from tests.backend.emit_kernels import c

Numbers = NDArray[np.int64]
CLUSTERS = (1, 2, 4, 8)
ROOM = 227 * 1024
"""Bytes of shared memory of a block."""
_LARGEST_TILE = 40 * 1024
LARGEST = {
    "int8": 127, "uint8": 255, "uint16": 65535, "bfloat16": 256, "float16": 2048,
    "float8_e4m3fn": 16, "float8_e5m2": 8, "float8_e4m3fnuz": 16, "float8_e5m2fnuz": 8,
}  # fmt: skip
"""Integers up to there are exact in a dtype; of other dtypes those of 20 bits are used."""


@dataclass(frozen=True)
class Placed:
    """A kernel, the numbers in its tensors, and those that must be in some of them afterwards."""

    kernel: Kernel
    tensors: dict[str, Numbers]
    expected: dict[str, Numbers]


@dataclass(frozen=True)
class Draw:
    """Draws what kernels are made of."""

    random: Random
    turn: int = 0

    def in_turn(self, *lists: tuple[str, ...] | tuple[int, ...]) -> tuple[Any, ...]:
        """One of each list, such that as many turns as there are combinations have all of them."""
        result, left = [], self.turn
        for choices in lists:
            result.append(choices[left % len(choices)])
            left //= len(choices)
        return tuple(result)

    def number(self, *choices: int) -> int:
        return self.random.choice(choices)

    def dtype(self, *names: str) -> DType:
        return DTYPES[self.random.choice(names)]

    def base(self, size: int) -> int:
        """Where `size` bytes of shared memory begin: low, above 64 KiB, above 128 KiB, or at the very end."""
        last = (ROOM - size) // 1024
        return 1024 * min(last, self.number(0, self.random.randint(64, 127), self.random.randint(128, 220), last))

    def numbers(self, dtype: DType, *shape: int) -> Numbers:
        """Integers that the dtype holds exactly, as different as it allows."""
        most = LARGEST.get(dtype.name, 1 << 20)
        least = 0 if dtype.name.startswith("uint") else -most
        return np.random.default_rng(self.random.getrandbits(32)).integers(least, most, shape, endpoint=True)


def placed(family: str, seed: int, count: int) -> Iterator[Placed]:
    """The first `count` kernels of a family, named after it and their number."""
    for number in range(count):
        one = FAMILIES[family](Draw(Random(f"{seed}.{family}.{number}"), number))
        yield replace(one, kernel=replace(one.kernel, name=f"{family}{number}"))


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def tensor(name: str, dtype: DType, shape: tuple[int, ...], alignment: int = 16) -> str:
    """A contiguous tensor of constant extents."""
    steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
    strides = ", ".join(f"{step}:int64" for step in steps)
    return f"tensor {name}: {dtype}[{', '.join(map(str, shape))}] strides [{strides}] align {alignment}"


def panelled(shape: tuple[int, ...], dtype: DType, row: int = 128) -> SwizzledLayout:
    """Rows of `row` bytes in their swizzle; of longer ones, one panel after the other."""
    *outer, rows, columns = shape
    width = row // dtype.bytes
    swizzle = Swizzle((row // 16).bit_length() - 1, (16 // dtype.bytes).bit_length() - 1, 3)
    steps = tuple(rows * columns * prod(outer[i + 1 :]) for i in range(len(outer)))
    if columns == width:
        return SwizzledLayout(swizzle, 0, Layout(shape, (*steps, width, 1)))
    across = (width, columns // width)
    return SwizzledLayout(swizzle, 0, Layout((*outer, rows, across), (*steps, width, (1, rows * width))))


def shared(name: str, dtype: DType, shape: tuple[int, ...], layout: object, offset: int) -> str:
    return f"shared {name}: {dtype} {shape_text(shape)} layout {layout} at {offset}"


# ---------------------------------------------------------------------------- bulk copies


UPDATES = {
    "add": ("float32", "float16", "bfloat16", "int32"),
    "min": ("float16", "bfloat16", "int32", "int64"),
    "max": ("float16", "bfloat16", "int32", "int64"),
}
REDUCERS: dict[str, Callable[[Numbers, Numbers], Numbers]] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def groups(cluster: int) -> list[tuple[int, int]]:
    """Every (count, stride) of blocks among which a copy can go in a cluster."""
    powers = [1 << i for i in range(4)]
    return [(n, by) for n in powers[1:] for by in powers if cluster % (n * by) == 0]


def boxes(draw: Draw) -> Placed:
    """Boxes of 2 to 5 dimensions come by the copy engine, to one block or to several, beginning before the tensor or
    ending behind it; leave their tile through registers; and go to another tensor by the copy engine."""
    how, cluster = draw.in_turn(("store", *UPDATES), CLUSTERS)
    names = UPDATES.get(how, ("uint8", "float8_e4m3fn", "bfloat16", "float16", "float32", "int32", "int64"))
    among = draw.random.choice([None, *groups(cluster), *groups(cluster)])
    count, by = (1, 1) if among is None else among
    dtype, rank, narrow = draw.dtype(*names), draw.number(2, 3, 4, 5), draw.number(128, 64, *(32, 16)[: 5 - count])
    width, panel = 128 // dtype.bytes, narrow // dtype.bytes
    box = (*(draw.number(1, 2, 3) for _ in range(rank - 2)), 1024 // narrow * draw.number(1, 2), width)
    if prod(box) * dtype.bytes * count > _LARGEST_TILE:
        box = (*(1,) * (rank - 2), 1024 // narrow, width)
    tiles, size, blocks = (count, *box), prod(box) * dtype.bytes, 2 * cluster
    base = draw.base(2 * count * size + 1024)
    edge = [draw.number(-2, 0, 0, 3) for _ in box[:-1]] + [draw.number(-width // 2, 0, 0, width // 2)]
    beyond = draw.number(0, 16 // dtype.bytes, width)
    x_shape, out_shape = (blocks * box[0], *box[1:-1], width + beyond), (blocks * count * box[0], *box[1:])
    # The program's number of boxes along the first dimension; all begin a little off, on the same side.
    at = [f"program_id(0) * {box[0] if i == 0 else 0} + ({e}) + c{i}" for i, e in enumerate(edge)]
    inside = " & ".join(f"({e} >= 0) & ({e} < {n})" for e, n in zip(at, x_shape, strict=True))
    cells, shifted = (", ".join(f"c{i + more}" for i in range(rank)) for more in (0, 1))
    way, slot, to = "tma.load", "0", ""
    if among is not None:
        way, slot = "tma.load.multicast", f"program_id(0) % {cluster} // {by} % {count}"
        to = "" if among == (cluster, 1) and draw.number(0, 1) else f" among {count} by {by}"
    once = " once" if draw.number(0, 1) else ""
    layout = blocked(tiles, 32, vector=draw.number(1, 2, 4, 8, 16) // dtype.bytes or 1)
    run = width_of(layout, rank, dtype)
    moved = f"shape {shape_text(tiles)} layout {layout}"
    body = [
        f"mbarrier_expect full[0] bytes {count * size}",
        f"copy xs[{slot}, {cells}] <~ x[{', '.join(at)}] shape {shape_text(box)} if {inside} else {zero(dtype)}"
        f" via {way} signal full[0]{once}{to}",
        "mbarrier_wait full[0] parity 0",
        f"copy f[c0, {shifted}] <- xs[c0, {shifted}] {moved} via ld.shared vector {run}",
        f"copy ys[c0, {shifted}] <- f[c0, {shifted}] {moved} via st.shared vector {run}",
        "proxy_fence",
        "barrier",
        *(line for number in range(count) for line in leaving(how, number, count, box, panel)),
        "bulk_commit",
        "bulk_wait 0",
    ]
    head = [
        tensor("x", dtype, x_shape), tensor("out", dtype, out_shape), grid(blocks, cluster),
        shared("xs", dtype, tiles, panelled(tiles, dtype), base),
        shared("ys", dtype, tiles, panelled(tiles, dtype, narrow), base + count * size),
        f"mbarrier full count 1 arrivals 1 at {base + 2 * count * size}",
        f"fragment f: {dtype} {shape_text(tiles)} layout {layout}",
    ]  # fmt: skip
    most = 8 if how == "add" else 1 << 20
    x, before = (np.clip(draw.numbers(dtype, *s), -most, most) for s in (x_shape, out_shape))
    senders = (block if among is None else block - block // by % count * by + number * by
               for block in range(blocks) for number in range(count))  # fmt: skip
    arrived = (part(x, (sender * box[0] + edge[0], *edge[1:]), box) for sender in senders)
    values = np.concatenate(list(arrived))
    result = values if how == "store" else REDUCERS[how](before, values)
    return Placed(one_role("boxes", head, body), {"x": x, "out": before}, {"out": result})


def width_of(layout: FragmentLayout, axis: int, dtype: DType) -> int:
    """How many elements of a thread one access can move: those that follow one another along `axis`."""
    first = layout.values[0] if layout.values else None
    return min(first.extent, 16 // dtype.bytes) if first is not None and (first.dim, first.stride) == (axis, 1) else 1


def leaving(how: str, number: int, count: int, box: tuple[int, ...], panel: int) -> Iterator[str]:
    """The statements that bring tile `number` of `ys` to `out`: as one box, or in panels of fewer columns."""
    words = {"add": "add", "min": "minimum", "max": "maximum"}
    first = f"(program_id(0) * {count} + {number}) * {box[0]}"
    whole = panel == box[-1]
    for outer in [None] if whole else list(np.ndindex(*box[:-2])):
        for column in range(0, box[-1], panel):
            fixed = [] if outer is None else [str(i) for i in outer]
            free = [f"c{i}" for i in range(len(box) - len(fixed))]
            place = [*fixed, *free[:-1], f"{free[-1]} + {column}" if column else free[-1]]
            shape = shape_text((*(box[:-1] if outer is None else box[-2:-1]), panel))
            tile = f"ys[{number}, {', '.join(place)}]"
            to = f"out[{', '.join([f'{first} + {place[0]}', *place[1:]])}]"
            if how == "store":
                yield f"copy {to} <~ {tile} shape {shape} via tma.store"
            else:
                yield f"accumulate {to} {words[how]} {tile} shape {shape} via tma.reduce.{how}"


def part(x: Numbers, corner: tuple[int, ...], box: tuple[int, ...]) -> Numbers:
    """The box of `x` from `corner` on, zeros where it is outside."""
    places = [np.arange(start, start + extent) for start, extent in zip(corner, box, strict=True)]
    found = x[np.ix_(*(np.clip(p, 0, n - 1) for p, n in zip(places, x.shape, strict=True)))]
    for axis, (p, n) in enumerate(zip(places, x.shape, strict=True)):
        found = found * ((p >= 0) & (p < n)).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return found


def one_role(name: str, head: list[str], body: list[str], warps: int = 1) -> Kernel:
    """All in one role, behind what makes its mbarriers ready."""
    clustered = any(" cluster " in line for line in head)
    ready = [f"mbarrier_init {line.split()[1]}" for line in head if line.startswith("mbarrier ")]
    start = [*ready, "mbarrier_fence", f"barrier{' scope cluster' if clustered else ''}"]
    lines = [*start, "roles {", f"role all warps {warps} from 0 {{", *body, "}", "}"]
    return parsed(name, head, lines, warps)


def parsed(name: str, head: list[str], body: list[str], warps: int) -> Kernel:
    first = [f"kernel {name}", "target sm_90a", f"warps {warps} of 32"]
    return parse_kernel("\n".join(line for line in [*first, *head, "body {", *body, "}"] if line) + "\n")


def zero(dtype: DType) -> str:
    return f"0.0:{dtype}" if dtype.is_float else f"0:{dtype}"


def grid(blocks: int, cluster: int) -> str:
    return f"grid [{blocks}]" + (f" cluster {cluster}" if cluster > 1 else "")


# ---------------------------------------------------------------------------- shared memory of other blocks


def peers(draw: Draw) -> Placed:
    """Each block stores to the tile of one block of its cluster, and loads from that of another one."""
    (cluster,), dtype = draw.in_turn(CLUSTERS[1:]), draw.dtype(*(n for n in DTYPES if n not in ("bool", "tfloat32")))
    warps, vector = draw.number(1, 2, 4), draw.number(1, 2, 4, 8, 16) // dtype.bytes or 1
    size = 32 * warps * vector * draw.number(1, 2, 3)
    base = draw.base(size * dtype.bytes)
    blocks, stored, loaded = 2 * cluster, draw.random.randrange(cluster), draw.random.randrange(cluster)
    turned = vector * draw.random.randrange(32)
    layout = blocked((size,), 32 * warps, vector=vector)
    rank, moved = f"program_id(0) % {cluster}", f"shape {size} layout {layout}"
    to, of = (f"({rank} + {distance}) % {cluster}" for distance in (stored, loaded))
    body = [
        "barrier scope cluster",
        f"copy a[c0] <- x[program_id(0), c0] {moved} via ld.global vector {vector}",
        f"copy s[c0 + {turned}] block {to} <- a[c0] {moved} via st.shared.cluster vector {vector}",
        "barrier scope cluster",
        f"copy b[c0] <- s[c0 + {turned}] block {of} {moved} via ld.shared.cluster vector {vector}",
        "barrier scope cluster",
        f"copy out[program_id(0), c0] <- b[c0] {moved} via st.global vector {vector}",
    ]
    padded = size + turned
    head = [
        tensor("x", dtype, (blocks, size)), tensor("out", dtype, (blocks, size)), grid(blocks, cluster),
        shared("s", dtype, (padded,), f"{padded}:1", min(base, (ROOM - padded * dtype.bytes) // 1024 * 1024)),
        *(f"fragment {name}: {dtype} {size} layout {layout}" for name in "ab"),
    ]  # fmt: skip
    x = draw.numbers(dtype, blocks, size)
    tiles, places = np.zeros((blocks, padded), np.int64), slice(turned, padded)
    expected = np.zeros_like(x)
    for block in range(blocks):
        first = block - block % cluster
        tiles[first + (block + stored) % cluster, places] = x[block]
    for block in range(blocks):
        expected[block] = tiles[block - block % cluster + (block + loaded) % cluster, places]
    return Placed(parsed("peers", head, body, warps), {"x": x, "out": np.zeros_like(x)}, {"out": expected})


def arrivals(draw: Draw) -> Placed:
    """The blocks of a cluster go through phases together: each arrives in turn at the mbarriers of all of them, or of
    those that one or two groups reach, and waits for its own. Told of what each phase stored, they count."""
    (cluster,) = draw.in_turn(CLUSTERS[1:])
    some = draw.random.sample(groups(cluster), min(draw.number(0, 1, 2), len(groups(cluster))))
    reached = {0} if some else set(range(cluster))
    for count, by in some:
        reached |= {number * by for number in range(count)}
    phases, warps, base = draw.number(1, 2, 7), draw.number(1, 2, 4), draw.base(1024)
    lanes = 32 * warps
    moved = f"shape {lanes} layout [{lanes} | t {lanes}@0 | v]"
    to = "".join(f" among {count} by {by}" for count, by in some)
    body = [
        f"map a[c0] = 0 {moved} scope thread",
        f"for i in 0 .. {phases} step 1 {{",
        f"mbarrier_arrive got[i % 2] scope cluster{to}",
        "mbarrier_wait got[i % 2] parity i // 2 % 2",
        f"map a[c0] = a[c0] + 1 {moved} scope thread",
        "}",
        f"copy out[program_id(0), c0] <- a[c0] {moved} via st.global",
    ]
    head = [
        tensor("out", DTYPES["int32"], (2 * cluster, lanes)), grid(2 * cluster, cluster),
        f"mbarrier got count 2 arrivals {warps * len(reached)} at {base}",
        f"fragment a: int32 {lanes} layout [{lanes} | t {lanes}@0 | v]",
    ]  # fmt: skip
    out = np.zeros((2 * cluster, lanes), np.int64)
    return Placed(one_role("arrivals", head, body, warps), {"out": out}, {"out": out + phases})


# ---------------------------------------------------------------------------- registers, shared and global memory


def moves(draw: Draw) -> Placed:
    """A tile goes to registers, to shared memory, back to other registers, and out: vectors of every width, aligned or
    not, and matrices of 8 rows, as they are and turned; or to shared memory directly."""
    fills, reads = ("st.shared", "stmatrix", "cp.async"), ("ld.shared", "ldmatrix", "ldmatrix.trans")
    fill, read, count = draw.in_turn(fills, reads, (1, 2, 4))
    cluster = draw.number(*CLUSTERS)
    names = ["bfloat16", "float16"]
    if read != "ldmatrix.trans":
        names += ["int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float32", "int32"]
    if (fill, read) in (("st.shared", "ld.shared"), ("cp.async", "ld.shared")):
        names.append("int64")
    dtype, warps = draw.dtype(*names), draw.number(1, 2, 4)
    shape = (8 * 4 * warps, 16 // dtype.bytes * draw.number(1, 2, 4, 8))
    blocks, (rows, columns) = 2 * cluster, shape
    packed = columns * dtype.bytes == 128 and draw.number(0, 1)
    step = columns + draw.number(0, 16 // dtype.bytes)
    tile = panelled(shape, dtype) if packed else f"({rows},{columns}):({step},1)"
    base = draw.base(rows * step * dtype.bytes)
    vectors = [draw.random.choice([n for n in (1, 2, 4, 8, 16) if dtype.bytes <= n <= 16]) for _ in range(4)]
    first, second = (plain(shape, warps, n, dtype) for n in vectors[:2])
    unaligned = fill == "st.shared" and dtype.bytes < 8 and draw.number(0, 1)
    shift, limit = draw.random.randrange(9) if unaligned else 0, draw.random.randint(columns // 2, columns)
    if unaligned:
        first = plain(shape, warps, 16, dtype)
    if fill == "stmatrix":
        first = matrices(shape, warps, count, False, dtype)
    if read != "ld.shared":
        second = matrices(shape, warps, count, read.endswith("trans"), dtype)
    extent = shift + columns if not unaligned else shift + limit
    x_shape = (blocks * rows, extent if unaligned else columns)
    source = f"x[program_id(0) * {rows} + c0, c1{f' + {shift}' if shift else ''}]"
    inside = f"c1{f' + {shift}' if shift else ''} < {extent}" if unaligned else f"c0 < {rows - draw.number(0, 0, 5)}"
    masked = "" if not unaligned and draw.number(0, 1) else f" if {inside} else {zero(dtype)}"
    if fill == "cp.async":
        whole = max(4, vectors[0]) // dtype.bytes
        first = plain(shape, warps, whole * dtype.bytes, dtype)
        filled = [
            f"copy s[c0, c1] <- {source} shape {shape_text(shape)}{masked} layout {first} via cp.async vector {whole}",
            "commit_group", "wait_group 0",
        ]  # fmt: skip
    else:
        load = "ld.global.unaligned" if unaligned else "ld.global"
        run = 16 // dtype.bytes if unaligned else width_of(first, 1, dtype)
        to = 4 // dtype.bytes * count if fill == "stmatrix" else run
        filled = [
            f"copy a[c0, c1] <- {source} shape {shape_text(shape)}{masked} layout {first} via {load} vector {run}",
            f"copy s[c0, c1] <- a[c0, c1] shape {shape_text(shape)} layout {first} via {fill} vector {to}",
        ]
    back = width_of(second, 1, dtype) if read == "ld.shared" else 4 // dtype.bytes * count
    out = "program_id(0) * " + f"{rows} + c0, c1"
    body = [
        *filled,
        "barrier",
        f"copy b[c0, c1] <- s[c0, c1] shape {shape_text(shape)} layout {second} via {read} vector {back}",
        f"copy out[{out}] <- b[c0, c1] shape {shape_text(shape)} layout {second} via st.global"
        f" vector {width_of(second, 1, dtype)}",
    ]
    head = [
        tensor("x", dtype, x_shape, dtype.bytes if unaligned else 16), tensor("out", dtype, (blocks * rows, columns)),
        grid(blocks, cluster), shared("s", dtype, shape, tile, base),
        f"fragment a: {dtype} {shape_text(shape)} layout {first}" if fill != "cp.async" else "",
        f"fragment b: {dtype} {shape_text(shape)} layout {second}",
    ]  # fmt: skip
    x = draw.numbers(dtype, *x_shape)
    expected = np.zeros((blocks * rows, columns), np.int64)
    part_of = x[:, shift:]
    expected[:, : part_of.shape[1]] = part_of
    if masked and not unaligned:
        expected[np.arange(blocks * rows) % rows >= int(inside.split()[-1])] = 0
    return Placed(parsed("moves", head, body, warps), {"x": x, "out": np.zeros_like(expected)}, {"out": expected})


def plain(shape: tuple[int, ...], warps: int, size: int, dtype: DType) -> FragmentLayout:
    """Vectors of `size` bytes side by side."""
    return blocked(shape, 32 * warps, vector=size // dtype.bytes)


def matrices(shape: tuple[int, ...], warps: int, count: int, turned: bool, dtype: DType) -> FragmentLayout:
    """Matrices of 8 rows of 16 bytes, `count` below one another in one instruction; warps below one another."""
    each, columns, rows = 4 // dtype.bytes, 16 // dtype.bytes, shape[0] // warps
    lanes = "4@0*2 8@1" if turned else f"4@1{f'*{each}' if each > 1 else ''} 8@0"
    modes = ["2@0"] if turned else [f"{each}@1"] if each > 1 else []
    modes += [f"{count}@0*8"] if count > 1 else []
    modes += [f"{rows // 8 // count}@0*{8 * count}"] if rows > 8 * count else []
    modes += [f"{shape[1] // columns}@1*{columns}"] if shape[1] > columns else []
    group = f" {warps}@0*{rows}" if warps > 1 else ""
    return parse_fragment(f"[{shape_text(shape)} | t {lanes}{group} | v {' '.join(modes)}]".replace("| v ]", "| v]"))


FAMILIES: dict[str, Callable[[Draw], Placed]] = {"boxes": boxes, "peers": peers, "arrivals": arrivals, "moves": moves}


# ---------------------------------------------------------------------------- any kernel


def elsewhere(kernel: Kernel, draw: Draw) -> Kernel:
    """A kernel of roles whose blocks stand in clusters, each for itself, with its shared memory anywhere."""
    cluster, used = draw.number(*CLUSTERS), shared_bytes(kernel)
    base = draw.base(used)
    assert kernel.grid is not None
    first, *rest = kernel.grid
    rounded = op("mul", op("floordiv", op("add", first, c(cluster - 1)), c(cluster)), c(cluster))
    return replace(
        kernel,
        grid=(rounded if cluster > 1 else first, *rest),
        cluster=cluster,
        shared=tuple(replace(tile, offset=(tile.offset or 0) + base) for tile in kernel.shared),
        barriers=tuple(replace(barrier, offset=(barrier.offset or 0) + base) for barrier in kernel.barriers),
        body=tuple(Barrier("cluster") if isinstance(s, Barrier) and cluster > 1 else s for s in kernel.body),
    )
