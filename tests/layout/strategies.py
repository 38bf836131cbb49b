"""Random layouts for the law tests. `law` fixes the seed, so a run is repeatable."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from argus.layout import FragmentLayout, Layout, Mode, Swizzle, SwizzledLayout

law = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)

EXTENTS = st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8])


def nest(draw: st.DrawFn, leaves: list[tuple[int, int]]) -> Layout:
    """Arrange `(extent, stride)` leaves as a random tree of depth at most 2."""
    modes: list[tuple[object, object]] = []
    rest = list(leaves)
    while rest:
        take = draw(st.integers(1, len(rest)))
        group, rest = rest[:take], rest[take:]
        if len(group) == 1 and draw(st.booleans()):
            modes.append(group[0])
        else:
            modes.append((tuple(s for s, _ in group), tuple(d for _, d in group)))
    if len(modes) == 1:
        return Layout(*modes[0])  # type: ignore[arg-type]
    return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))  # type: ignore[arg-type]


@st.composite
def layouts(draw: st.DrawFn, negative: bool = False) -> Layout:
    """Any small layout: strides arbitrary, possibly 0 or repeated."""
    extents = draw(st.lists(EXTENTS, min_size=1, max_size=4))
    low = -12 if negative else 0
    strides = draw(st.lists(st.integers(low, 24), min_size=len(extents), max_size=len(extents)))
    return nest(draw, list(zip(extents, strides, strict=True)))


@st.composite
def injective(draw: st.DrawFn) -> Layout:
    """A layout whose strides nest, in any order and with gaps: no two coordinates share an offset."""
    extents = draw(st.lists(EXTENTS, min_size=1, max_size=4))
    order = draw(st.permutations(range(len(extents))))
    strides = [0] * len(extents)
    step = 1
    for k in order:
        step *= draw(st.sampled_from([1, 1, 1, 2, 3]))
        strides[k] = step
        step *= extents[k]
    return nest(draw, list(zip(extents, strides, strict=True)))


@st.composite
def compact(draw: st.DrawFn) -> Layout:
    """A bijection onto `0..size-1`."""
    extents = draw(st.lists(EXTENTS, min_size=1, max_size=4))
    order = draw(st.permutations(range(len(extents))))
    strides = [0] * len(extents)
    step = 1
    for k in order:
        strides[k] = step
        step *= extents[k]
    return nest(draw, list(zip(extents, strides, strict=True)))


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    bits = draw(st.integers(0, 3))
    shift = draw(st.integers(bits, 4))
    return Swizzle(bits, draw(st.integers(0, 4)), draw(st.sampled_from([shift, -shift])))


@st.composite
def swizzled(draw: st.DrawFn) -> SwizzledLayout:
    return SwizzledLayout(draw(swizzles()), draw(st.integers(0, 40)), draw(layouts()))


@st.composite
def fragments(draw: st.DrawFn) -> FragmentLayout:
    """Any small fragment: several digits a dimension, overlaps, gaps and replication included."""
    rank = draw(st.integers(0, 3))
    last = [0] * rank

    def modes() -> tuple[Mode, ...]:
        result = []
        for _ in range(draw(st.integers(0, 3))):
            extent = draw(st.sampled_from([1, 2, 3, 4]))
            dim = draw(st.sampled_from([None, *range(rank)]))
            stride = draw(st.sampled_from([1, 2, 4]))
            if dim is not None:
                last[dim] += (extent - 1) * stride
            result.append(Mode(extent, dim, stride))
        return tuple(result)

    threads, values = modes(), modes()
    slack = draw(st.integers(0, 1))
    return FragmentLayout(tuple(n + 1 + slack for n in last), threads, values)


def small_layouts() -> Iterator[Layout]:
    """Flat layouts of rank at most 2 with extents 1..4 and strides 0..4; compact ones of rank 3."""
    for s in range(1, 5):
        for d in range(5):
            yield Layout(s, d)
    for shape in product(range(1, 5), repeat=2):
        for stride in product(range(5), repeat=2):
            yield Layout(shape, stride)
    for shape in product((1, 2, 3), repeat=3):
        for order in permutations(range(3)):
            strides, step = [0, 0, 0], 1
            for k in order:
                strides[k] = step
                step *= shape[k]
            yield Layout(shape, tuple(strides))
