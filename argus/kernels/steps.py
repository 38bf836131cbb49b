"""Helpers that row kernels share: loading, statistics, and communication between blocks of a cluster."""

from __future__ import annotations

import argus
import argus.language as al

# ---------------------------------------------------------------------------- what specifications say


@argus.func
def mean(x, i):
    """Return the mean of row i."""
    return al.sum(lambda k: x[i, k]) / x.shape[1].to(al.float32)


@argus.func
def variance(x, i):
    """Return the mean of the squares of row i's differences from its mean."""
    return al.sum(lambda n: (x[i, n] - mean(x, i)) * (x[i, n] - mean(x, i))) / x.shape[1].to(al.float32)


@argus.func
def mean_square(x, i):
    """Return the mean of the squares of row i."""
    return al.sum(lambda k: x[i, k] * x[i, k]) / x.shape[1].to(al.float32)


@argus.func
def of_share(i, p, ROWS, BLOCKS, value):
    """Return `value` if row i belongs to share p, which has every BLOCKS-th group of ROWS rows, else 0."""
    return al.where(i // ROWS % BLOCKS == p, value, 0.0)


# ---------------------------------------------------------------------------- loading


@argus.func
def group_at(x, first, ROWS, BLOCK):
    """Return the rows of a matrix from `first` on, with zeros outside."""
    rows, cols = first + al.arange(ROWS)[:, None], al.arange(BLOCK)
    return al.load(x[rows, cols], mask=(rows < x.shape[0]) & (cols < x.shape[1]))


@argus.func
def piece(x, row, cols):
    """Return the elements `cols` of a row as float32, with zeros behind its end."""
    return al.load(x[row, cols], mask=cols < x.shape[1]).to(al.float32)


@argus.func
def piece_of(x, cols):
    """Return the elements `cols` of a vector as float32, with zeros behind its end."""
    return al.load(x[cols], mask=cols < x.shape[0]).to(al.float32)


@argus.func
def columns_of(rows, BLOCK, STEP, WIDTH):
    """Return the columns of BLOCK places in each row, where rows begin STEP elements each behind an aligned address;
    and the register layout, the load and the store that the memory's own vectors of WIDTH take."""
    if STEP:
        cols = al.arange(BLOCK) - (rows % WIDTH * STEP % WIDTH)[:, None]
        way, load, keep = al.blocked((rows.shape[0], BLOCK), (1, 0), WIDTH), "ld.global.cut", "st.global.cut"
    else:
        cols = al.arange(BLOCK)
        way, load, keep = None, None, None
    return cols, way, load, keep


# ---------------------------------------------------------------------------- rows that wait in shared memory


@argus.func
def bring(held, x, row, begin, COPY):
    """Copy this block's part of a row to its shared memory `held`, in pieces, with zeros behind the row's end."""
    parts, cols = al.arange(held.shape[0])[:, None], al.arange(held.shape[1])
    places = begin + parts * held.shape[1] + cols
    al.copy(held[parts, cols], x[row, places], mask=places < x.shape[1], other=0.0, instruction=COPY)


@argus.func
def arrived(CLUSTER):
    """Wait until all blocks of the cluster have started and have loaded their parts."""
    al.cp_async_commit()
    al.cp_async_wait(0)
    al.barrier(scope="cluster" if CLUSTER > 1 else "block")


@argus.func
def found_by_all(found, told):
    """Return what every block of the cluster found; each block tells its own result to all of them."""
    for rank in al.static_range(told.shape[0]):
        al.store(al.peer(told[al.cluster_rank()], rank), found)
    al.barrier(scope="cluster")
    return al.load(told[al.arange(told.shape[0])])
