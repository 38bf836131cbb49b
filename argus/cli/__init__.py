"""The command line: check, show, build, mutate, explain, layout, lsp, demo.

Exit codes: 0 all proved (or done); 1 something refuted, or a mutant missed; 2 unusable input; 3 something unknown.
Where several hold: 2 before 1 before 3 before 0.
"""

from argus.cli.main import main

__all__ = ["main"]
