from __future__ import annotations

from collections.abc import Callable

import pytest

from argus.diagnostic import SourceError
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from tests.ir.kernels import KERNELS


@pytest.mark.parametrize("make", KERNELS)
def test_reads_back_what_it_prints(make: Callable[[], Kernel]) -> None:
    kernel = make()
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(parse_kernel(text)) == text


def test_says_where_the_text_is_wrong() -> None:
    with pytest.raises(SourceError) as caught:
        parse_kernel("kernel k\nwarps 1 of 32\nbody {\n  jump\n}\n")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.span.line, diagnostic.span.column) == ("ir-syntax", 4, 3)
