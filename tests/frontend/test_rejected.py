"""Every mistake has its code, its place and its remedy; and a twin, one edit away, that is accepted."""

import pytest

from tests.frontend.kernels import elaborate, errors

ACC = "acc = al.zeros((64, 64), al.float32)\n"
STAGED = "at = al.stage(a[0:64, 0:32])\nbt = al.stage(b[0:64, 0:32])\n"
TILE = "t = al.load(x[0:64])\n"

# (code, what the message says, rejected body, accepted body)
TWINS = [
    # names
    ("unknown-name", "no name `blok`", "i = blok", "i = BLOCK"),
    ("unknown-name", "no name `load`", "t = load(x[0:64])", "t = al.load(x[0:64])"),
    ("unknown-name", "a Python function", "t = python_helper(1)", "t = twice(1)"),
    ("unknown-function", "no `lod`", "t = al.lod(x[0:64])", "t = al.load(x[0:64])"),
    ("unknown-function", "for annotations", "t = al.Tensor", "t = al.float32"),
    ("unknown-attribute", "no `.shap`", "i = x.shap[0]", "i = x.shape[0]"),
    ("unknown-attribute", "not in registers", "t = x.to(al.float16)", TILE + "u = t.to(al.float16)"),
    (
        "undefined-after-block",
        "not defined here",
        "for i in range(n):\n    z = i\nw = z",
        "z = 0\nfor i in range(n):\n    z = i\nw = z",
    ),
    (
        "undefined-after-block",
        "only one branch",
        "if n > 0:\n    z = 1\nw = z",
        "if n > 0:\n    z = 1\nelse:\n    z = 2\nw = z",
    ),
    (
        "undefined-after-block",
        "ends with the loop",
        "for i in al.static_range(2):\n    z = i\nw = i",
        "for i in al.static_range(2):\n    z = i\nw = z",
    ),
    ("shadowed-size", "symbolic size", "N = 3", "N = x.shape[0]"),
    ("shadowed-size", "symbolic size", "for N in range(n):\n    pass", "for i in range(n):\n    pass"),
    ("shadowed-size", "the module", "al = 3", "a1 = 3"),
    # constants
    ("not-constant", "computed by Python", "z = TABLE", "z = HALF"),
    ("bad-constant", "defined by itself", "z = LOOP", "z = SIZE"),
    ("bad-constant", "division by zero", "z = 1 // (BLOCK - 64)", "z = 1 // (BLOCK - 63)"),
    ("bad-constant", "does not fit", "z = n + 3000000000", "z = n + 2000000000"),
    ("bad-constant", "more than", "z = 1 << 100000", "z = 1 << 10"),
    ("not-constant", "constant integer", "z = al.arange(n)", "z = al.arange(BLOCK)"),
    ("not-constant", "holds constants", "z = al.zeros((n, 4), al.float32)", "z = al.zeros((BLOCK, 4), al.float32)"),
    ("not-constant", "`assert` checks constants", "assert n > 0", "assert BLOCK > 0"),
    ("not-constant", "is a constant, and this", TILE + "u = fixed(t, eps)", TILE + "u = fixed(t, 2.0)"),
    ("not-constant", "condition of `if ... else`", "z = 1 if n > 0 else 2", "z = 1 if BLOCK > 0 else 2"),
    ("not-constant", "takes constants", "z = min(n, 3)", "z = al.minimum(n, 3)"),
    (
        "static-assert",
        "multiple of 128",
        'assert BLOCK % 128 == 0, "BLOCK is a multiple of 128"',
        'assert BLOCK % 64 == 0, "BLOCK is a multiple of 64"',
    ),
    # types
    (
        "type-mismatch",
        "mixes float32 and int32",
        TILE + "u = t + al.arange(64)",
        TILE + "u = t + al.arange(64).to(al.float32)",
    ),
    (
        "type-mismatch",
        "mixes float16 and float32",
        "u = al.load(h[0:64]) * eps",
        "u = al.load(h[0:64]).to(al.float32) * eps",
    ),
    ("type-mismatch", "cannot become int32", "u = al.arange(64) * 0.5", "u = al.arange(64) * 5"),
    ("type-mismatch", "in memory", "u = x + 1.0", "u = al.load(x[0:64]) + 1.0"),
    ("type-mismatch", "storage format", "u = al.load(f8[0:64]) * 2.0", "u = al.load(f8[0:64]).to(al.float32) * 2.0"),
    ("type-mismatch", "not compute on booleans", "u = (n > 0) + (n > 1)", "u = (n > 0) | (n > 1)"),
    ("type-mismatch", "integers and booleans", TILE + "u = t & t", TILE + "u = (t > 0.0) & (t < 1.0)"),
    ("type-mismatch", "needs floating point", "u = al.exp(al.arange(64))", "u = al.exp(al.arange(64).to(al.float32))"),
    ("type-mismatch", "computes on integers", TILE + "u = t // 2.0", TILE + "u = al.floor(t / 2.0)"),
    ("type-mismatch", "`**` is for constants", "u = n ** 2", "u = n * n"),
    ("type-mismatch", "holds float16", TILE + "al.store(h[0:64], t)", TILE + "al.store(h[0:64], t.to(al.float16))"),
    (
        "type-mismatch",
        "products of bfloat16",
        STAGED + "acc = al.mma(at, bt, al.zeros((64, 64), al.bfloat16))",
        STAGED + "acc = al.mma(at, bt, al.zeros((64, 64), al.float32))",
    ),
    (
        "type-mismatch",
        "in global memory",
        "acc = al.mma(a[0:64, 0:32], b[0:64, 0:32], al.zeros((64, 64), al.float32))",
        STAGED + "acc = al.mma(at, bt, al.zeros((64, 64), al.float32))",
    ),
    ("type-mismatch", "does not work on float16", "al.atomic_add(h[0:64], 1.0)", "al.atomic_add(x[0:64], 1.0)"),
    ("type-mismatch", "does not work on float32", "al.atomic_max(x[0:64], 1.0)", "al.atomic_max(idx[0:64], 1)"),
    (
        "type-mismatch",
        "global tensors",
        "s = al.shared((64,), al.float32)\nal.atomic_add(s, 1.0)",
        "al.atomic_add(x[0:64], 1.0)",
    ),
    ("integer-division", "divides floating-point", "u = n / 2", "u = n // 2"),
    ("unknown-dtype", "is a dtype", "u = al.zeros((64,), 1.0)", "u = al.zeros((64,), al.float32)"),
    ("unknown-dtype", "takes a dtype", TILE + "u = t.to(NAME)", TILE + "u = t.to(DTYPE)"),
    ("bad-condition", "not bool", "if n:\n    pass", "if n != 0:\n    pass"),
    ("bad-condition", "decides once", TILE + "if t > 0.0:\n    pass", TILE + "if al.sum(t) > 0.0:\n    pass"),
    ("bad-condition", "decides once", TILE + "u = t > 0.0 and t < 1.0", TILE + "u = (t > 0.0) & (t < 1.0)"),
    (
        "bad-condition",
        "a mask is",
        "t = al.load(x[0:64], mask=al.arange(64))",
        "t = al.load(x[0:64], mask=al.arange(64) < n)",
    ),
    # shapes
    (
        "shape-mismatch",
        "(64,) and (32,)",
        TILE + "u = t + al.arange(32).to(al.float32)",
        TILE + "u = t + al.arange(64).to(al.float32)",
    ),
    (
        "shape-mismatch",
        "the view (64,)",
        "al.store(x[0:64], al.zeros((2, 64), al.float32))",
        "al.store(x[0:64], al.zeros((64,), al.float32))",
    ),
    (
        "shape-mismatch",
        "mask has shape (2, 64)",
        "t = al.load(x[0:64], mask=al.zeros((2, 64), al.boolean))",
        "t = al.load(x[0:64], mask=al.zeros((64,), al.boolean))",
    ),
    (
        "shape-mismatch",
        "last dimensions, k, differ",
        "at = al.stage(a[0:64, 0:32])\nbt = al.stage(b[0:64, 0:16])\n" + ACC + "acc = al.mma(at, bt, acc)",
        STAGED + ACC + "acc = al.mma(at, bt, acc)",
    ),
    (
        "shape-mismatch",
        "product of shape (64, 64)",
        STAGED + "acc = al.mma(at, bt, al.zeros((64, 32), al.float32))",
        STAGED + "acc = al.mma(at, bt, al.zeros((64, 64), al.float32))",
    ),
    (
        "shape-mismatch",
        "the source (32, 64)",
        "s = al.shared((64, 32), al.bfloat16)\nal.copy(s, a[0:32, 0:64])",
        "s = al.shared((64, 32), al.bfloat16)\nal.copy(s, a[0:64, 0:32])",
    ),
    (
        "bad-shape",
        "extent below 1",
        "u = al.zeros((BLOCK - 64,), al.float32)",
        "u = al.zeros((BLOCK - 63,), al.float32)",
    ),
    ("bad-shape", "is empty", "u = al.arange(0)", "u = al.arange(1)"),
    ("bad-shape", "is empty", "u = al.arange(-4)", "u = al.arange(-4, 0)"),
    ("bad-shape", "length 0", "t = al.load(x[4:4])", "t = al.load(x[4:5])"),
    (
        "bad-shape",
        "more than 1048576",
        "u = al.zeros((2048, 2048), al.float32)",
        "u = al.zeros((512, 512), al.float32)",
    ),
    ("bad-shape", "no dimension 1", TILE + "u = al.sum(t, axis=1)", TILE + "u = al.sum(t, axis=0)"),
    ("bad-shape", "swaps two dimensions", TILE + "u = al.trans(t)", "u = al.trans(al.load(a[0:64, 0:32]))"),
    (
        "bad-shape",
        "no permutation",
        "u = al.permute(al.load(a[0:64, 0:32]), (0, 0))",
        "u = al.permute(al.load(a[0:64, 0:32]), (1, 0))",
    ),
    ("bad-shape", "as long as the tensor", "t = al.load(x)", "t = al.load(x[0:64])"),
    # indices
    ("bad-index", "2 dimensions", "t = al.load(a[0:64])", "t = al.load(a[0:64, 0:32])"),
    ("bad-index", "no constant extent", "t = al.load(x[0:])", "t = al.load(x[0:64])"),
    ("bad-index", "length of this slice", "t = al.load(x[0:n])", "t = al.load(x[n : n + 64])"),
    ("bad-index", "no step", "t = al.load(x[0:64:2])", "t = al.load(x[2 * al.arange(32)])"),
    ("bad-index", "negative index", "t = al.load(x[-1])", "t = al.load(x[x.shape[0] - 1])"),
    ("bad-index", "by `None` and `:` only", TILE + "u = t[0]", TILE + "u = t[:, None]"),
    ("bad-index", "takes no new dimension", "t = al.load(a[None, 0:64])", "t = al.load(a[0, 0:64])[None, :]"),
    ("bad-index", "an index is an integer", "t = al.load(x[eps])", "t = al.load(x[n])"),
    (
        "bad-index",
        "only one index tile",
        "t = al.load(out[al.arange(4)[:, None], 0:4])",
        "t = al.load(out[al.arange(4), 0:4])",
    ),
    ("bad-index", "no item 2", "M1 = a.shape[2]", "M1 = a.shape[1]"),
    # calls
    (
        "wrong-arguments",
        "takes 4 arguments",
        TILE + "al.store(x[0:64], t, None, (), 1)",
        TILE + "al.store(x[0:64], t, None, ())",
    ),
    ("wrong-arguments", "lacks its argument", "u = al.zeros((64,))", "u = al.zeros((64,), al.float32)"),
    ("wrong-arguments", "no argument `msk`", "t = al.load(x[0:64], msk=True)", "t = al.load(x[0:64], mask=True)"),
    ("wrong-arguments", "twice", "t = al.load(x[0:64], view=x[0:64])", "t = al.load(view=x[0:64])"),
    ("wrong-arguments", "takes 1 arguments", "t = twice(1, 2)", "t = twice(1)"),
    ("wrong-arguments", "lacks its argument `n`", "t = fixed(1)", "t = fixed(1, 2)"),
    ("wrong-arguments", "cannot call the kernel", "k(x)", "z = twice(1)"),
    ("wrong-arguments", "cannot be called", "z = n(1)", "z = twice(n)"),
    ("wrong-arguments", "2 names cannot be bound to 3 values", "p, q = 1, 2, 3", "p, q = 1, 2"),
    ("wrong-arguments", "is a string", "al.assume(n > 0, 3)", 'al.assume(n > 0, "checked by the caller")'),
    ("recursive-function", "calls itself", "z = again(1)", "z = twice(1)"),
    ("return-not-last", "decided at run time", "z = early(1)", "z = twice(1)"),
    ("return-not-last", "a kernel returns nothing", "return 1", "return"),
    ("return-not-last", "nothing after", "return\nz = 1", "z = 1\nreturn"),
    ("unused-value", "does nothing with it", "n + 1", "z = n + 1"),
    ("unused-value", "does nothing with it", "al.load(x[0:64])", "z = al.load(x[0:64])"),
    ("not-assignable", "cannot be bound", "f = al.load", "f = al.load(x[0:64])"),
    # loops
    ("bad-loop", "runs over a range", "for i in n:\n    pass", "for i in range(n):\n    pass"),
    ("bad-loop", "is positive", "for i in range(0, n, -1):\n    pass", "for i in range(0, n, 1):\n    pass"),
    ("bad-loop", "constant integer", "for i in range(0, 64, n):\n    pass", "for i in range(0, n, BLOCK):\n    pass"),
    ("bad-loop", "scalar of int32", "for i in range(eps):\n    pass", "for i in range(n):\n    pass"),
    (
        "not-constant",
        "unrolled loop",
        "for i in al.static_range(n):\n    pass",
        "for i in al.static_range(4):\n    pass",
    ),
    (
        "unrolled-too-far",
        "5000 times",
        "for i in al.static_range(5000):\n    pass",
        "for i in al.static_range(500):\n    pass",
    ),
    (
        "loop-carried-type",
        "before this block",
        TILE + "for i in range(n):\n    u = t\n    t = al.load(x[0:32])",
        TILE + "for i in range(n):\n    u = t\n    t = al.load(x[1:65])",
    ),
    (
        "loop-carried-type",
        "cannot become",
        "v = x\nfor i in range(n):\n    u = al.load(v[0:64])\n    v = y",
        "v = x\nfor i in range(n):\n    u = al.load(v[0:64])\n    v = x",
    ),
    # explicit style
    (
        "unknown-instruction",
        "is not an instruction",
        's = al.shared((64,), al.float32)\nal.copy(s, x[0:64], instruction="cp.asink")',
        's = al.shared((64,), al.float32)\nal.copy(s, x[0:64], instruction="cp.async")',
    ),
    (
        "unknown-instruction",
        "copies from shared to fragment",
        's = al.shared((64, 32), al.bfloat16)\nal.copy(s, a[0:64, 0:32], instruction="ldmatrix")',
        's = al.shared((64, 32), al.bfloat16)\nt = al.load(s, instruction="ldmatrix")',
    ),
    (
        "unknown-instruction",
        "not a matrix instruction",
        't = al.tiled_mma("mma_m16n8k17", (64, 64, 32), (2, 2))',
        't = al.tiled_mma("mma_m16n8k16", (64, 64, 32), (2, 2))',
    ),
    (
        "unknown-instruction",
        "not int8",
        'p = al.zeros((64, 32), al.int8)\nacc = al.mma(p, p, al.zeros((64, 64), al.int32), instruction="mma_m16n8k16")',
        'p = al.zeros((64, 32), al.int8)\nacc = al.mma(p, p, al.zeros((64, 64), al.int32), instruction="mma_m16n8k32")',
    ),
    (
        "bad-layout",
        "do not make the block's 4",
        't = al.tiled_mma("mma_m16n8k16", (64, 64, 32), (2, 4))',
        't = al.tiled_mma("mma_m16n8k16", (64, 64, 32), (1, 4))',
    ),
    (
        "bad-layout",
        "along M",
        't = al.tiled_mma("mma_m16n8k16", (48, 64, 32), (2, 2))',
        't = al.tiled_mma("mma_m16n8k16", (96, 64, 32), (2, 2))',
    ),
    (
        "bad-layout",
        "of shape (64, 64)",
        's = al.shared((64, 32), al.float32, layout=al.layout("(64,64):(64,1)"))',
        's = al.shared((64, 64), al.float32, layout=al.layout("(64,64):(64,1)"))',
    ),
    ("bad-layout", "cannot read layout", 's = al.layout("(64,64:(64,1)")', 's = al.layout("(64,64):(64,1)")'),
    ("bad-layout", "overlap", "s = al.swizzle(3, 3, 2)", "s = al.swizzle(3, 3, 3)"),
    (
        "bad-layout",
        "spreads over 32 threads",
        't = al.load(x[0:64], layout=al.fragment_layout("[64 | t 32@0 | v 2@0*32]"))',
        't = al.load(x[0:64], layout=al.fragment_layout("[64 | t 64@0 2@_ | v]"))',
    ),
    (
        "bad-layout",
        "is a register layout",
        "t = al.load(x[0:64], layout=3)",
        "t = al.load(x[0:64], layout=al.blocked((64,)))",
    ),
    ("wrong-arguments", "at least 0", "al.cp_async_wait(-1)", "al.cp_async_wait(0)"),
    # position and preconditions
    ("bad-grid", "declared twice", "p = al.grid(n)\nq = al.grid(n)", "p = al.grid(n)"),
    ("bad-grid", "not known at launch", "p = al.grid(al.thread_id())", "p = al.grid(n)"),
    ("bad-grid", "not declared before", "p = al.num_programs(0)", "q = al.grid(n)\np = al.num_programs(0)"),
    ("bad-grid", "axes 0, 1 and 2", "p = al.program_id(3)", "p = al.program_id(2)"),
    ("bad-requires", "not known at launch", "al.requires(al.program_id(0) < 3)", "al.requires(n < 3)"),
    ("bad-requires", "never holds", "al.requires(BLOCK == 3)", "al.requires(BLOCK == 64)"),
    (
        "bad-requires",
        "whole integer tensor",
        "al.requires(al.in_range(x, 0, n))",
        "al.requires(al.in_range(idx, 0, n))",
    ),
    ("bad-requires", "says why", 'al.assume(n > 0, "")', 'al.assume(n > 0, "the caller counts")'),
    (
        "thread-dependent",
        "belongs to the whole block",
        "al.store(x[al.thread_id()], 1.0)",
        "if al.thread_id() == 0:\n    al.store(x[0], 1.0)",
    ),
    (
        "thread-dependent",
        "belongs to the whole block",
        "for i in range(al.thread_id()):\n    pass",
        "p = al.thread_id()",
    ),
    ("conditional-declaration", "the grid", "if n > 0:\n    p = al.grid(n)", "p = al.grid(n)"),
    ("conditional-declaration", "a precondition", "if n > 0:\n    al.requires(n < 9)", "al.requires(n < 9)"),
    (
        "conditional-declaration",
        "a specification",
        "if n > 0:\n    al.spec(x, lambda i: y[i])",
        "if BLOCK > 0:\n    al.spec(x, lambda i: y[i])",
    ),
    # tags
    ("bad-tag", "2 parameters", "al.tag(x, lambda i, j: (i, j))", "al.tag(x, lambda i: (i,))"),
    ("bad-tag", "has no name", "al.tag(x, lambda i: (i + 1,))", "al.tag(x, lambda i: dict(i=i + 1))"),
    ("bad-tag", "takes a lambda", "al.tag(x, 3)", "al.tag(x, lambda i: (i,))"),
    ("bad-tag", "put on whole tensors", "al.tag(x[0:64], lambda i: (i,))", "al.tag(x, lambda i: (i,))"),
    (
        "bad-tag",
        "how far `j` ranges",
        TILE + "al.assert_tags(lambda i, j: t[i].i == j)",
        TILE + "al.assert_tags(lambda i: t[i].i == i)",
    ),
    (
        "bad-tag",
        "is an equality",
        TILE + "al.assert_tags(lambda i: t[i].i < i)",
        TILE + "al.assert_tags(lambda i: t[i].i == i)",
    ),
    (
        "bad-tag",
        "is not a number here",
        TILE + "al.assert_tags(lambda i: t[i] == i)",
        TILE + "al.assert_tags(lambda i: t[i] == (i,))",
    ),
    (
        "bad-tag",
        "other parameters",
        TILE + "al.assert_tags(lambda i: t[i].i == i, where=lambda j: j < n)",
        TILE + "al.assert_tags(lambda i: t[i].i == i, where=lambda i: i < n)",
    ),
    ("bad-tag", "in an assertion", "z = al.once(0, n)", TILE + "al.assert_tags(lambda i: t[i].k == al.once(0, n))"),
    ("bad-tag", "1 parameters", "al.spec(out, lambda m: 1.0)", "al.spec(out, lambda m, k: 1.0)"),
    (
        "bad-tag",
        "how far `j` ranges",
        "al.spec(x, lambda i: al.sum(lambda j: y[i]))",
        "al.spec(x, lambda i: al.sum(lambda j: y[j]))",
    ),
    ("bad-tag", "not one element", "al.spec(x, lambda i: y)", "al.spec(x, lambda i: y[i])"),
    ("shadowed-size", "symbolic size", "al.spec(x, lambda N: y[N])", "al.spec(x, lambda i: y[i])"),
]


@pytest.mark.parametrize(("code", "says", "bad", "good"), TWINS, ids=[f"{i}-{t[0]}" for i, t in enumerate(TWINS)])
def test_rejected_with_its_code_and_accepted_one_edit_away(code, says, bad, good):
    found = errors(bad)
    assert [d.code for d in found] == [code], [d.message for d in found]
    assert says in found[0].message
    assert found[0].help
    assert found[0].span.known
    elaborate(good)
