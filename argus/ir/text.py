"""The text form of the IR, in both directions. Law: `parse_kernel(print_kernel(kernel)) == kernel`, apart from
spans."""

from argus.ir.print_terms import print_expr
from argus.ir.text_parser import parse_kernel, read_kernel
from argus.ir.text_printer import print_kernel, print_stmt

__all__ = ["parse_kernel", "print_expr", "print_kernel", "print_stmt", "read_kernel"]
