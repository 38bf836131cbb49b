"""`python -m benchmarks COMMAND [--json FILE]`, from the root: a table of figures, or `plot`, which draws them."""

from __future__ import annotations

import argparse

from argus.diagnostic import ArgusError
from benchmarks.commands import COMMANDS
from benchmarks.table import show


def main() -> int:
    """Run one benchmark and print its table. Return the exit status."""
    arguments = _parser().parse_args()
    if arguments.command == "plot":
        from benchmarks import page, plot

        page.write()
        for file in plot.draw():
            print(file)
        return 0
    command = next(c for c in COMMANDS if c.name == arguments.command)
    try:
        results = command.run(arguments)
    except ArgusError as error:
        print(error)
        return 1
    show(results, arguments.json)
    return 1 if any(row.get("disagreed") or row.get("missed") for row in results.rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures of Argus, one table a command.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    commands.add_parser("plot", help="tables and pictures of docs/performance.md, from benchmarks/results")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
