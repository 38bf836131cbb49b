"""The entry point of `python -m argus` and of the command `argus`. An interrupt ends the process with a message."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process. Return 130 if the user interrupts it, even while the compiler is being
    loaded."""
    try:
        from argus import cli

        return cli.main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
