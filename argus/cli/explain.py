"""The command `argus explain`."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.markdown import Markdown

from argus import pages
from argus.cli.common import PROVED


def run(options: argparse.Namespace) -> int:
    """Print the page of an error code, or list all codes."""
    if options.code is None:
        print("\n".join(pages.codes()))
        return PROVED
    text = pages.explanation(options.code)
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
    return PROVED
