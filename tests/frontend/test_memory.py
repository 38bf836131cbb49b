"""Views and what moves through them: indices, masks, fills, transposition, matrix products, atomics."""

import pytest

from tests.frontend.kernels import elaborate, statements


@pytest.mark.parametrize(
    ("view", "copied"),
    [
        ("x[n]", "x[n] shape ()"),
        ("x[n : n + 8]", "x[n + c0] shape 8"),
        ("x[8:16]", "x[8 + c0] shape 8"),
        ("x[2 * n + 1 : 1 + n * 2 + 8]", "x[2 * n + 1 + c0] shape 8"),
        ("a[n, 0:8]", "a[n, c0] shape 8"),
        ("a[0:4, 8:16]", "a[c0, 8 + c1] shape 4x8"),
        ("x[al.arange(8)]", "x[c0] shape 8"),
        ("a[al.arange(4)[:, None], al.arange(8)[None, :]]", "a[c0, c1] shape 4x8"),
        ("a[al.arange(4), al.arange(4)]", "a[c0, c0] shape 4"),
        ("a[al.arange(4), 0:8]", "a[c0, c1] shape 4x8"),
        ("al.trans(a[0:4, 0:8])", "a[c1, c0] shape 8x4"),
        ("al.permute(a[0:4, 0:8], (1, 0))", "a[c1, c0] shape 8x4"),
        ("a[0:16, 0:8][4:8, 2]", "a[4 + c0, 2] shape 4"),
    ],
)
def test_indices(view, copied):
    (line,) = statements(f"v = al.load({view})")
    assert line.split(" <- ")[1] == copied


@pytest.mark.parametrize(
    ("load", "mask"),
    [
        ("al.load(x[n : n + 8])", None),
        ("al.load(x[n : n + 8], mask=al.arange(8) < n)", "c0 < n"),
        ("al.load(x[n : n + 8], mask=n > 0)", "n > 0"),
        ("al.load(x[0:8], boundary_check=(0,))", "c0 < N"),
        ("al.load(x[n : n + 8], boundary_check=0)", "(n + c0 >= 0) & (n + c0 < N)"),
        ("al.load(x[n : n + 8], boundary_check=(-1,))", "(n + c0 >= 0) & (n + c0 < N)"),
        ("al.load(a[0:4, 0:8], boundary_check=(1,))", "c1 < K"),
        ("al.load(a[n, 0:8], boundary_check=(0,))", "c0 < K"),
        ("al.load(al.trans(a[0:4, 0:8]), boundary_check=(0,))", "c0 < K"),
        ("al.load(x[0:8], mask=al.arange(8) < 5, boundary_check=(0,))", "(c0 < 5) & (c0 < N)"),
        ("al.load(x[al.load(idx[0:8])], boundary_check=(0,))", "(idx_tile[c0] >= 0) & (idx_tile[c0] < N)"),
        (
            "al.load(x[al.load(wide[0:8])], boundary_check=(0,))",
            "(wide_tile[c0] >= 0:int64) & (wide_tile[c0] < int64(N))",
        ),
    ],
)
def test_masks(load, mask):
    line = statements(f"v = {load}")[-1]
    assert line.partition(" if ")[2] == (f"{mask} else 0.0" + (":bfloat16" if "a[" in load else "") if mask else "")


def test_a_loop_counter_from_zero_up_is_never_negative_and_a_scalar_may_be():
    lines = statements("for s in range(0, n, 8):\n    v = al.load(x[s : s + 8], boundary_check=(0,))")
    assert lines[1].endswith("if s + c0 < N else 0.0")
    lines = statements("for s in range(n, 99, 8):\n    v = al.load(x[s : s + 8], boundary_check=(0,))")
    assert "(s + c0 >= 0) & (s + c0 < N)" in lines[1]


@pytest.mark.parametrize(
    ("other", "fill"),
    [("", "0.0"), (", other=1", "1.0"), (', other=-float("inf")', "-inf"), (", other=None", "0.0")],
)
def test_what_is_masked_out_reads_other(other, fill):
    (line,) = statements(f"v = al.load(x[0:8], mask=n > 0{other})")
    assert line.endswith(f"else {fill}")


@pytest.mark.parametrize(("other", "fill"), [("", "false"), (", other=True", "true")])
def test_bools_that_are_masked_out_are_bools(other, fill):
    (line,) = statements(f"v = al.load(flags[0:8], mask=n > 0{other})")
    assert line.endswith(f"else {fill}")


def test_a_transposed_store_runs_over_the_tile_s_own_elements():
    lines = statements("v = al.load(out[0:4, 0:8])\nal.store(out[n : n + 8, 0:4], al.trans(v), boundary_check=(0,))")
    assert lines[-1] == "copy out[n + c1, c0] <- v[c0, c1] shape 4x8 if (n + c1 >= 0) & (n + c1 < M)"


def test_stores_broadcast_and_convert_constants():
    assert statements("al.store(h[0:8], 1)")[0] == "map h_tile[c0] = 1.0:float16 shape 8"
    lines = statements("v = al.load(x[0:8])\nal.store(out[0:4, 0:8], v)")
    assert lines[1] == "map out_tile[c0, c1] = v[c1] shape 4x8"


def test_atomics_accumulate_into_memory():
    assert statements("al.atomic_add(x[al.arange(8)], 1.0, mask=al.arange(8) < n)") == [
        "accumulate x[c0] add 1.0 shape 8 if c0 < n"
    ]
    assert statements("al.atomic_max(idx[3], n)") == ["accumulate idx[3] maximum n shape ()"]


def test_copies_between_memories():
    body = "s = al.shared((8, 16), al.bfloat16)\n"
    body += 'al.copy(s, a[0:8, 0:16], boundary_check=(1,), other=0.0, instruction="cp.async")'
    assert statements(body) == ["copy s[c0, c1] <- a[c0, c1] shape 8x16 if c1 < K else 0.0:bfloat16 via cp.async"]
    body = "s = al.shared((8, 16), al.float32)\nal.copy(out[0:8, 0:16], s, boundary_check=(0,))"
    assert statements(body) == ["copy out[c0, c1] <- s[c0, c1] shape 8x16 if c0 < M"]


def test_shared_tiles_have_the_layout_asked_for():
    body = "p = al.shared((8, 16), al.float32)\nq = al.shared((8, 16), al.float32, layout=al.swizzle(2, 2, 3))\n"
    body += 'r = al.shared((8, 16), al.float32, layout=al.layout("(8,16):(1,8)"))'
    kernel = elaborate(body)
    assert [str(s.layout) for s in kernel.shared] == ["(8,16):(16,1)", "Sw<2,2,3> o 0 o (8,16):(16,1)", "(8,16):(1,8)"]


# ---------------------------------------------------------------------------- matrix products

STAGED = "at = al.stage(a[0:64, 0:32])\nbt = al.stage(b[0:32, 0:32])\nacc = al.zeros((64, 32), al.float32)\n"


def test_what_is_read_once_is_said_so():
    plain, once = statements("at = al.stage(a[0:64, 0:32], once=False)\nbt = al.stage(b[0:64, 0:32], once=True)")
    assert plain.endswith("shape 64x32") and once.endswith("shape 64x32 once")


def test_a_product_updates_its_accumulator_in_place_or_a_copy_of_it():
    assert statements(STAGED + "acc = al.mma(at, bt, acc)")[3:] == [
        "mma acc[c0, c1] += at[c0, c2] * bt[c1, c2] shape 64x32x32"
    ]
    assert statements(STAGED + "c = al.mma(at, bt, acc)")[3:] == [
        "map c[c0, c1] = acc[c0, c1] shape 64x32",
        "mma c[c0, c1] += at[c0, c2] * bt[c1, c2] shape 64x32x32",
    ]


def test_operands_may_be_registers_transposed_or_parts_of_shared_tiles():
    body = "s = al.shared((2, 16, 64), al.bfloat16)\nv = al.load(a[0:64, 0:16]) * 2.0\n"
    body += "acc = al.zeros((64, 64), al.float32)\nacc = al.mma(v, al.trans(s[1, :, :]), acc)"
    assert statements(body)[-1] == "mma acc[c0, c1] += v[c0, c2] * s[1, c2, c1] shape 64x64x16"


def test_named_products():
    body = 't = al.tiled_mma("mma_m16n8k16", (64, 32, 32), (2, 2))\n'
    body += "s = al.shared((64, 32), al.bfloat16)\nacc = al.zeros((64, 32), al.float32, layout=t.c)\n"
    body += 'p = al.load(s, layout=t.a, instruction="ldmatrix")\nq = al.load(s[0:32, :], layout=t.b)\n'
    body += 'acc = al.mma(p, q, acc, instruction="mma_m16n8k16", warps=(2, 2))'
    lines = statements(body)
    assert lines[-1] == "mma acc[c0, c1] += p[c0, c2] * q[c1, c2] shape 64x32x32 via mma_m16n8k16 warps 2x2"
    assert lines[1].endswith("via ldmatrix") and "layout [64x32 |" in lines[1]


# ---------------------------------------------------------------------------- across elements


@pytest.mark.parametrize(
    ("reduction", "shape", "lines"),
    [
        ("al.sum(v, axis=1)", (4,), ["map r[c0] = 0.0 shape 4", "accumulate r[c0] add v[c0, c1] shape 4x8"]),
        ("al.max(v, axis=0)", (8,), ["map r[c0] = -inf shape 8", "accumulate r[c1] maximum v[c0, c1] shape 4x8"]),
        ("al.min(v)", (), ["map r[] = inf shape ()", "accumulate r[] minimum v[c0, c1] shape 4x8"]),
        (
            "al.sum(v, axis=-1, keep_dims=True)",
            (4, 1),
            ["map r[c0, c1] = 0.0 shape 4x1", "accumulate r[c0, 0] add v[c0, c1] shape 4x8"],
        ),
        ("al.sum(v * v, 1)", (4,), ["map r[c0] = 0.0 shape 4", "accumulate r[c0] add v[c0, c1] * v[c0, c1] shape 4x8"]),
    ],
)
def test_reductions(reduction, shape, lines):
    body = f"v = al.load(out[0:4, 0:8])\nr = {reduction}"
    assert statements(body)[1:] == lines
    assert next(f for f in elaborate(body).fragments if f.name == "r").shape == shape


def test_shuffles_read_other_lanes():
    lines = statements("v = al.load(x[0:32])\np = al.shuffle_xor(v, 4)\nq = al.shuffle_up(v, 1)")
    assert lines[1:] == [
        "map p[c0] = v[c0 ^ 4] shape 32 scope warp",
        "map q[c0] = v[where(c0 - 1 >= 0, c0 - 1, c0)] shape 32 scope warp",
    ]
