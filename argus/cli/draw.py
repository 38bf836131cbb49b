"""The command `argus layout`."""

from __future__ import annotations

import argparse
import sys

from argus import layout
from argus.cli.common import PROVED, bad_input, out, write_file
from argus.layout import LayoutError, picture


def run(options: argparse.Namespace) -> int:
    """Draw a layout on the terminal, or write its picture."""
    try:
        read = layout.parse_fragment if options.notation.strip().startswith("[") else layout.parse
        drawn = read(options.notation)
        if options.svg is None:
            color = sys.stdout.isatty()
            out().print(picture.text(drawn, color, options.element_bytes), markup=color)
            return PROVED
        image = picture.svg(drawn, options.element_bytes)
    except LayoutError as error:
        raise bad_input("bad-layout", str(error), "`argus layout --help` shows the notation") from error
    write_file(options.svg, image.encode())
    return PROVED
