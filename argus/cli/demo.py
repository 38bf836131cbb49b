"""The command `argus demo`."""

from __future__ import annotations

import argparse

from argus.cli.common import err, out
from argus.demo import demo


def run(_options: argparse.Namespace) -> int:
    """Prove and run a kernel on this machine, then refute a wrong one."""
    return demo(out(), err())
