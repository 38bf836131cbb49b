"""The command `argus lsp`."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from argus.cli.common import PROVED, bad_input
from argus.cli.version import installed_version


def run(options: argparse.Namespace) -> int:
    """Serve an editor over standard input and output."""
    if find_spec("pygls") is None:
        help = 'install the extra: `pip install "argus-tile[lsp]"`'
        raise bad_input("bad-option", "`argus lsp` needs pygls, which is not installed", help)
    from argus.editor.server import serve

    serve(options.target, installed_version())
    return PROVED
