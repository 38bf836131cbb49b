"""Specifications by execution: all elements of an output at once, or some of them, and where a wrong one lies."""

from __future__ import annotations

import numpy as np
import pytest

from argus.frontend import Options, check, parse
from argus.ir.nodes import Kernel, Spec
from argus.ir.visit import walk
from argus.simulate import launch
from argus.simulate.memory import Dense
from argus.simulate.run import MOST_ITERATIONS, prepare
from argus.simulate.specification import check_spec
from argus.source import SourceFile

TEXT = """
import argus.language as al

@argus.kernel
def weighted(q: al.Tensor[al.float32, "H M D"], k: al.Tensor[al.float32, "H N D"], v: al.Tensor[al.float32, "H N E"],
             o: al.Tensor[al.float32, "H M E"]):
    N, D = k.shape[1], k.shape[2]
    al.spec(o, lambda h, i, e: al.sum(lambda n: al.softmax(lambda j: al.sum(lambda d: q[h, i, d] * k[h, j, d]))[n]
                                      * v[h, n, e]))
    h, i, e = al.grid(q.shape[0], q.shape[1], v.shape[2])
    al.store(o[h, i, e], 0.0)
"""


def weighted() -> Kernel:
    return check(parse(SourceFile("weighted.py", TEXT)), "weighted", Options())


@pytest.mark.product
@pytest.mark.parametrize("unwritten", [None, (1, 0, 0)], ids=["all elements", "all but one"])
@pytest.mark.parametrize("rows", [3, 600], ids=["one piece", "several pieces"])
def test_a_wrong_element_is_the_one_that_is_named(unwritten: tuple[int, ...] | None, rows: int) -> None:
    kernel, rng = weighted(), np.random.default_rng(1)
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in ((2, rows, 8), (2, 600, 8), (2, 600, 4)))
    scores = np.exp(np.einsum("hid,hjd->hij", q, k, dtype=np.float64))
    right = np.einsum("hij,hje->hie", scores / scores.sum(axis=2, keepdims=True), v).astype(np.float32)
    for wrong in (None, (1, 2, 3), (0, 0, 1)):
        o = right.copy()
        if wrong is not None:
            o[wrong] += 0.5
        arrays = {"q": q, "k": k, "v": v, "o": o}
        params = launch.bind(kernel, arrays)
        contents = {name: Dense(array, keep=True) for name, array in arrays.items()}
        run = prepare(kernel, params, contents, True, False, False, MOST_ITERATIONS)
        run.tensors["o"].writes[:] = 1
        if unwritten is not None:
            run.tensors["o"].writes[np.ravel_multi_index(unwritten, o.shape)] = 0
        (stmt,) = (s for s in walk(kernel.body) if isinstance(s, Spec))
        check_spec(run, stmt, complete=True, widely=lambda numbers: (run, run))
        assert [(v.code, v.logical) for v in run.log.violations] == ([("spec-mismatch", wrong)] if wrong else [])
