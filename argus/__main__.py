"""The entry point, of `python -m argus` and of the command `argus`. Interrupted at any time, it says so and ends."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line of this process; 130 if the user interrupts, even while the compiler is being loaded."""
    try:
        from argus import cli

        return cli.main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
