"""Small kernels for tests: a body inside a fixed signature."""

from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.ir.text import print_kernel
from argus.source import SourceFile

HEAD = """\
import argus
import argus.language as al

SIZE = 64
HALF = SIZE // 2
DTYPE = al.float16
TABLE = [1, 2]
LOOP = LOOP + 1


@argus.func
def twice(v):
    return v + v


@argus.func
def again(v):
    return again(v)


@argus.func
def early(v):
    if al.thread_id() == 0:
        return v
    return v


@argus.func
def fixed(v, n: al.constexpr):
    return v * n


def python_helper(v):
    return v


@argus.kernel
def k(
    x: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "L K"],
    h: al.Tensor[al.float16, "N"],
    idx: al.Tensor[al.int32, "N"],
    wide: al.Tensor[al.int64, "N"],
    f8: al.Tensor[al.float8_e4m3fn, "N"],
    flags: al.Tensor[al.boolean, "N"],
    out: al.Tensor[al.float32, "M K"],
    n: al.int32,
    eps: al.float32,
    BLOCK: al.constexpr = 64,
    NAME: al.constexpr = "relu",
):
"""


def text_of(body: str) -> str:
    """A file with kernel `k`, whose body is the given lines."""
    return HEAD + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))


def elaborate(body: str, **options):
    """The tile IR of kernel `k` with that body."""
    return check(parse(SourceFile("kernel.py", text_of(body))), "k", Options(**options))


def errors(body: str, **options):
    """The diagnostics that kernel `k` with that body is rejected with."""
    try:
        elaborate(body, **options)
    except SourceError as error:
        return error.diagnostics
    return ()


def statements(body: str, **options):
    """The printed statements of kernel `k` with that body."""
    lines = print_kernel(elaborate(body, **options)).split("\n")
    start = lines.index("body {") if "body {" in lines else None
    return [] if start is None else [line[2:] for line in lines[start + 1 : lines.index("}", start)]]
