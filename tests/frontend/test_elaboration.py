"""What statements become: registers, in-place updates, accumulations, blocks, inlined helpers."""

from dataclasses import replace

import pytest

from argus.frontend import Options, check, parse
from argus.ir.text import print_expr, print_kernel
from argus.source import SourceFile
from tests.frontend.kernels import elaborate, errors, statements

LOAD = "t = al.load(x[0:64])"
T = "copy t[c0] <- x[c0] shape 64"


def made(body, **options):
    """Statements after the load of `t`."""
    lines = statements(LOAD + "\n" + body, **options)
    assert lines[0] == T
    return lines[1:]


# ---------------------------------------------------------------------------- what gets registers


def test_index_tiles_and_uniform_scalars_stay_expressions():
    body = "i = al.program_id(0) * BLOCK + al.arange(BLOCK)\nm = i < n\ns = eps * 2.0\nal.store(x[i], s, mask=m)"
    assert statements(body) == [
        "map x_tile[c0] = eps * 2.0 shape 64",
        "copy x[program_id(0) * 64 + c0] <- x_tile[c0] shape 64 if program_id(0) * 64 + c0 < n",
    ]


def test_tiles_that_compute_get_registers_when_named_and_nest_within_a_statement():
    assert made("u = al.exp(t * 2.0) + 1.0") == ["map u[c0] = exp(t[c0] * 2.0) + 1.0 shape 64"]


def test_a_large_index_expression_gets_registers_so_that_nothing_grows_without_bound():
    body = "i = al.arange(64)\n" + "i = i + i\n" * 40 + "al.store(idx[0:64], i)"
    assert len(statements(body)) < 50


def test_a_second_name_is_a_copy():
    assert made("u = t\nt = t * 2.0\nal.store(x[0:64], u)") == [
        "map u[c0] = t[c0] shape 64",
        "map t[c0] = t[c0] * 2.0 shape 64",
        "copy x[c0] <- u[c0] shape 64",
    ]


def test_a_view_that_is_named_keeps_the_index_it_was_made_with():
    body = "i = al.load(idx[0:64])\nv = x[i]\ni = i + 1\nu = al.load(v)"
    assert statements(body) == [
        "copy i[c0] <- idx[c0] shape 64",
        "map v_index[c0] = i[c0] shape 64",
        "accumulate i[c0] add 1 shape 64",
        "copy u[c0] <- x[v_index[c0]] shape 64",
    ]


# ---------------------------------------------------------------------------- in place


def test_rebinding_updates_in_place_and_reading_across_goes_through_a_temporary():
    body = "q = al.load(out[0:32, 0:32])\nq = q + al.trans(q)"
    assert statements(body)[1:] == [
        "map q_1[c0, c1] = q[c0, c1] + q[c1, c0] shape 32x32",
        "map q[c0, c1] = q_1[c0, c1] shape 32x32",
    ]


def test_a_load_goes_straight_into_the_name_that_a_loop_carries():
    body = "for i in range(n):\n    u = t * 2.0\n    t = al.load(x[i * 64 : i * 64 + 64])"
    assert made(body) == [
        "for i in 0 .. n step 1 {",
        "  map u[c0] = t[c0] * 2.0 shape 64",
        "  copy t[c0] <- x[i * 64 + c0] shape 64",
        "}",
    ]


def test_swapping_two_names_reads_both_first():
    body = "u = al.load(y[0:64])\nt, u = u, t"
    assert made(body)[1:] == [
        "map t_1[c0] = u[c0] shape 64",
        "map u_1[c0] = t[c0] shape 64",
    ]


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("t = t + u", "accumulate t[c0] add u[c0] shape 64"),
        ("t = u + t", "accumulate t[c0] add u[c0] shape 64"),
        ("t += u", "accumulate t[c0] add u[c0] shape 64"),
        ("t += 1.0", "accumulate t[c0] add 1.0 shape 64"),
        ("t = al.maximum(t, u)", "accumulate t[c0] maximum u[c0] shape 64"),
        ("t = al.minimum(u * 2.0, t)", "accumulate t[c0] minimum u[c0] * 2.0 shape 64"),
        ("t = t + t", "map t[c0] = t[c0] + t[c0] shape 64"),
        ("t = t - u", "map t[c0] = t[c0] - u[c0] shape 64"),
        ("t -= u", "map t[c0] = t[c0] - u[c0] shape 64"),
        ("t = t * u", "map t[c0] = t[c0] * u[c0] shape 64"),
        ("t = t + u * t", "map t[c0] = t[c0] + u[c0] * t[c0] shape 64"),
    ],
)
def test_accumulations_are_recognised(update, expected):
    assert made("u = al.load(y[0:64])\n" + update)[1:] == [expected]


def test_a_sum_of_another_shape_or_dtype_is_a_new_tile():
    assert made("t = t + al.zeros((2, 64), al.float32)") == ["map t_1[c0, c1] = t[c1] + 0.0 shape 2x64"]


# ---------------------------------------------------------------------------- loops and branches


def test_scalars_and_index_tiles_that_a_loop_changes_get_registers():
    body = "i = 0\nat = al.arange(4)\nfor s in range(0, n, 2):\n    i += s\n    at += 4\nz = i"
    assert statements(body) == [
        "map i[] = 0 shape ()",
        "map at[c0] = c0 shape 4",
        "for s in 0 .. n step 2 {",
        "  accumulate i[] add s shape ()",
        "  accumulate at[c0] add 4 shape 4",
        "}",
        "map z[] = i[] shape ()",
    ]


def test_a_name_that_a_loop_binds_first_and_nothing_reads_later_is_the_loop_s_own():
    body = "z = al.arange(4)\nfor s in range(n):\n    z = s * 64 + al.arange(64)\n    u = al.load(x[z])"
    assert statements(body) == ["for s in 0 .. n step 1 {", "  copy u[c0] <- x[s * 64 + c0] shape 64", "}"]


def test_a_block_that_hides_a_name_leaves_it_to_the_loop_around_it():
    body = "i = 0\nfor s in range(n):\n    if i > 0:\n        pass\n    else:\n        i = 7\n    i = 1\n"
    body += "al.store(idx[0], i)"
    lines = statements(body)
    assert lines[0] == "map i[] = 0 shape ()"
    assert [line for line in lines if " = 1 shape" in line] == ["  map i[] = 1 shape ()"]


def test_loop_counters_have_names_of_their_own():
    body = "for s in range(n):\n    pass\nfor s in range(n):\n    for q in range(s):\n        pass"
    assert [line.split(" in ")[0] for line in statements(body) if "for" in line] == ["for s", "for s_1", "  for q"]


def test_both_branches_may_introduce_a_name():
    body = "if n > 0:\n    z = t\nelse:\n    z = t * 2.0\nal.store(x[0:64], z)"
    lines = made(body)
    assert lines[0] == "if n > 0 {"
    assert lines[-2:] == ["}", "copy x[c0] <- z_2[c0] shape 64"]
    assert "  map z_2[c0] = z[c0] shape 64" in lines and "  map z_2[c0] = z_1[c0] shape 64" in lines


def test_a_branch_changes_an_outer_name_in_place():
    assert made("if n > 0:\n    t = t * 2.0") == ["if n > 0 {", "  map t[c0] = t[c0] * 2.0 shape 64", "}"]


def test_a_constant_condition_is_decided_and_the_other_branch_not_looked_at():
    assert statements('if NAME == "relu":\n    al.barrier()\nelse:\n    anything(1, 2)') == ["barrier"]
    assert statements(
        'if NAME in ("silu", "gelu") or BLOCK > 64:\n    anything(1, 2)\nelif n > 0:\n    al.barrier()'
    ) == [
        "if n > 0 {",
        "  barrier",
        "}",
    ]


def test_static_loops_are_unrolled_over_ranges_and_tuples():
    lines = statements(
        "for s in al.static_range(1, 6, 2):\n    al.store(idx[s], s)\nfor v in (7, 8):\n    al.store(idx[v], 0)"
    )
    assert [line for line in lines if line.startswith("copy")] == [
        f"copy idx[{i}] <- idx_tile{suffix}[] shape ()"
        for i, suffix in ((1, ""), (3, "_1"), (5, "_2"), (7, "_3"), (8, "_4"))
    ]


def test_items_of_a_tuple_are_what_they_were_before_the_loop():
    """Only those are copied that the loop would change before their turn."""
    assert made("u = t * 2.0\nfor v in (t, u, t):\n    u = v + 1.0") == [
        "map u[c0] = t[c0] * 2.0 shape 64",
        "map v[c0] = u[c0] shape 64",
        "map v_1[c0] = t[c0] shape 64",
        "map u[c0] = v_1[c0] + 1.0 shape 64",
        "map v_1[c0] = v[c0] shape 64",
        "map u[c0] = v_1[c0] + 1.0 shape 64",
        "map v_1[c0] = t[c0] shape 64",
        "map u[c0] = v_1[c0] + 1.0 shape 64",
    ]


def test_pipelined_loops_keep_their_policy():
    lines = statements(
        "for s in al.pipelined(0, n, 32, stages=4):\n    u = al.stage(x[s : s + 32], boundary_check=(0,))"
    )
    assert lines == [
        "for s in 0 .. n step 32 kind pipelined stages 4 {",
        "  stage u <- x[s + c0] shape 32 if s + c0 < N else 0.0",
        "}",
    ]


# ---------------------------------------------------------------------------- helpers


def test_a_helper_reads_its_caller_s_tile_and_its_result_is_adopted():
    assert made("u = twice(t)") == ["map u[c0] = t[c0] + t[c0] shape 64"]


def test_errors_inside_a_helper_tell_the_call():
    (found,) = errors('z = twice("a") + twice(al.arange(4) < 2)')[:1]
    assert found.span.line == 13 and found.span.call.line == 54


HELPERS = """
import argus
import argus.language as al

@argus.func
def scaled(v, by=2.0):
    v = v * by
    w = v - 1.0
    return w, v

@argus.func
def added(v, n):
    v += 1.0
    for i in range(n):
        v = v * 2.0
    return v

@argus.func
def doubled_in_a_loop(v, n):
    for i in range(n):
        v = v * 2.0
    return v

@argus.kernel
def k(x: al.Tensor[al.float32, "N"], n: al.int32):
    t = al.load(x[0:64])
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "u, t = scaled(t)",
            ["map v[c0] = t[c0] * 2.0 shape 64", "map w[c0] = v[c0] - 1.0 shape 64"],
        ),
        (
            "u = added(t, n)",
            [
                "map v[c0] = t[c0] shape 64",
                "accumulate v[c0] add 1.0 shape 64",
                "for i in 0 .. n step 1 {",
                "map v[c0] = v[c0] * 2.0 shape 64",
                "}",
            ],
        ),
        (
            "u = doubled_in_a_loop(t, n)",
            [
                "map v[c0] = t[c0] shape 64",
                "for i in 0 .. n step 1 {",
                "map v[c0] = v[c0] * 2.0 shape 64",
                "}",
            ],
        ),
    ],
)
def test_a_helper_does_not_change_its_caller_s_tile(body, expected):
    kernel = check(parse(SourceFile("f.py", HELPERS + f"    {body}\n    al.store(x[0:64], t + u)\n")), "k", Options())
    lines = [line.strip() for line in print_kernel(kernel).split("\n")]
    start = lines.index("copy t[c0] <- x[c0] shape 64") + 1
    assert lines[start : start + len(expected)] == expected


# ---------------------------------------------------------------------------- errors do not cascade


def test_one_mistake_is_one_error_and_independent_ones_are_all_found():
    body = "z = blok\nw = z + 1\nal.store(x[0:64], w)\nfor s in range(z):\n    q = w + s\nr = n / 2\n"
    body += "if z > 1:\n    z = 3\nv = z"
    assert [(d.code, d.span.line) for d in errors(body)] == [("unknown-name", 54), ("integer-division", 59)]


def test_an_error_in_an_unrolled_loop_is_told_once():
    assert len(errors("for s in al.static_range(8):\n    z = n / 2")) == 1


def test_helpers_that_never_end_are_cut_short():
    body = "for s in al.static_range(1000):\n    for q in al.static_range(1000):\n        z = s"
    assert [d.code for d in errors(body)] == ["unrolled-too-far"]


def test_nothing_is_left_of_names_that_are_not_used():
    kernel = elaborate("z = al.arange(64)\nw = z < n\nv = (1, BLOCK)\nd = al.float16")
    assert kernel.body == () and kernel.fragments == ()


# ---------------------------------------------------------------------------- the order of blocks


def test_clusters_round_the_first_extent_up():
    body = "p, q = al.grid(al.cdiv(n, 64), n{})"
    plain, clustered = elaborate(body.format("")), elaborate(body.format(", cluster=2"))
    assert (plain.cluster, clustered.cluster) == (1, 2)
    rows, columns = clustered.grid
    assert print_expr(rows) == f"({print_expr(plain.grid[0])} + 1) // 2 * 2"
    assert columns == plain.grid[1]
    assert clustered.body == plain.body


def test_the_group_of_a_grid_is_the_kernels_and_changes_nothing_else():
    body = "p, q = al.grid(n, n{})\nal.store(x[p * 64 + q], 1.0)"
    plain, grouped = elaborate(body.format("")), elaborate(body.format(", group=8"))
    assert (plain.group, grouped.group) == (1, 8)
    assert replace(grouped, group=1) == plain


def test_a_persistent_grid_is_the_kernels_and_changes_nothing_else():
    body = "p, q = al.grid(n, n{})\nal.store(x[p * 64 + q], 1.0)"
    plain, persistent = elaborate(body.format(", persistent=False")), elaborate(body.format(", persistent=True"))
    assert (plain.persistent, persistent.persistent) == (False, True)
    assert replace(persistent, persistent=False) == plain == elaborate(body.format(""))
