"""The command line: check, show, build, mutate, explain, layout, lsp, demo.

Exit codes: 0 all proved (or done); 1 something refuted, or a mutant missed; 2 unusable input; 3 something unknown. If
several apply, 2 takes precedence over 1, 1 over 3, and 3 over 0.
"""

from argus.cli.main import main

__all__ = ["main"]
