"""The command `argus mcp`."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from argus.cli.common import PROVED, bad_input
from argus.cli.version import installed_version


def run(options: argparse.Namespace) -> int:
    """Offer the tools to a coding agent over standard input and output."""
    if find_spec("mcp") is None:
        help = 'install the extra: `pip install "argus-tile[agents]"`'
        raise bad_input("bad-option", "`argus mcp` needs the package mcp, which is not installed", help)
    from argus.agents.tools.server import server

    server(installed_version()).run("stdio")
    return PROVED
