"""The commands and their flags. A command's module is imported when the command is run."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from argus.cli.arguments import acceptable, definition, number, positive, seconds, size
from argus.diagnostic import ArgusError
from argus.ir.target import TARGETS
from argus.ir.types import ALIGNMENTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` default to the arguments of the process."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding of a terminal or file cannot represent are escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    from argus.cli.common import UNUSABLE, internal, report, unwritable

    if sys.stdout is None:  # The shell closed the output by `>&-`.
        return report(unwritable("standard output", OSError(errno.EBADF, "it is closed")).diagnostics)
    try:
        code: int = importlib.import_module(f"argus.cli.{options.module}").run(options)
        if not sys.stdout.closed:  # A server closes the output at the end of its session.
            sys.stdout.flush()
        return code
    except ArgusError as error:
        return report(error.diagnostics)
    except BrokenPipeError:
        # The reader of the output is gone, so nobody would see an error message.
        _discard_output()
        return UNUSABLE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            return report([internal(error)])
        _discard_output()
        return report(unwritable("standard output", error).diagnostics)
    except Exception as error:  # An internal error is reported as a diagnostic, not as a traceback.
        return report([internal(error)])


def _discard_output() -> None:
    """Discard the rest of the output, because Python flushes it when it exits and would report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Version(argparse.Action):
    """Prints the version. The package's metadata is read only when it is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_others: object) -> None:
        from argus.cli.version import installed_version

        print(f"argus {installed_version()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argus", description="Prove how data moves through GPU kernels.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, module: str, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(module=module)
        return sub

    check = command("check", "check", "prove every kernel of some files, or show why one is wrong")
    check.add_argument("files", nargs="+", metavar="FILE[::KERNEL]")
    check.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    form = check.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    form.add_argument("--sarif", action="store_true", help="print a SARIF 2.1 log")
    check.add_argument("--exact", action="store_true",
                       help="prove each property of the kernel itself, on no simpler form of it; slower")  # fmt: skip
    check.add_argument("--second-opinion", action="store_true",
                       help="ask Z3 what ISL answered, and the reverse; 4 if they disagree; slower")  # fmt: skip
    show = command("show", "show", "print the explicit kernel that policies make: it can be changed, and checked again")
    show.add_argument("file", metavar="FILE[::KERNEL]")
    show.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    build = command("build", "build", "prove kernels and write their source, machine code and resource report")
    build.add_argument("file", metavar="FILE[::KERNEL]")
    build.add_argument("--target", choices=list(TARGETS), required=True)
    build.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("."), help="default: here")
    build.add_argument("--package", metavar="DIR", type=Path, help="write a package for C of FILE::NAME instead")
    report = command("report", "report", "prove kernels, and write one page about them")
    report.add_argument("file", metavar="FILE[::KERNEL]")
    report.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    report.add_argument("-o", "--output", metavar="FILE", type=Path, default=Path("report.html"),
                        help="default: report.html")  # fmt: skip
    mutant = command("mutate", "mutate", "make small edits of a kernel, and count those that the proof catches")
    mutant.add_argument("files", nargs="+", metavar="FILE[::KERNEL]")
    mutant.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    mutant.add_argument("--seed", type=int, default=0, metavar="S", help="which mutants are drawn; default: 0")
    mutant.add_argument("--count", type=positive, metavar="N", help="how many mutants are drawn of each kernel")
    mutant.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    repairer = command("repair", "repair", "look for an edit that makes a wrong kernel right, and prove it")
    repairer.add_argument("file", metavar="FILE[::KERNEL]")
    repairer.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    repairer.add_argument("--steps", type=positive, default=48, metavar="N", help="edits to try; default: 48")
    repairer.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    known = command("knowledge", "knowledge", "find what is known about making kernels fast, and what applies to one")
    known.add_argument("query", nargs="?", metavar="QUERY|FILE[::KERNEL]", help="words, or a kernel; default: all")
    known.add_argument("--target", choices=list(TARGETS), default="sm_90a", help="default: sm_90a")
    known.add_argument("--json", action="store_true", help="print a JSON list with an object for each entry")
    faster = command("optimize", "optimize", "look for a faster kernel that is proved to compute the same")
    faster.add_argument("file", metavar="FILE[::KERNEL]")
    faster.add_argument("--target", choices=list(TARGETS), required=True)
    faster.add_argument("--minutes", type=seconds, default=5.0, metavar="M", help="of the whole run; default: 5")
    faster.add_argument("--steps", type=positive, default=1000, metavar="N", help="candidates; default: 1000")
    faster.add_argument("--workers", type=positive, metavar="N", help="proofs at a time; default: one a core")
    faster.add_argument("--number", dest="numbers", action="append", type=number, default=[], metavar="NAME=VALUE",
                        help="a float that the kernel takes; default: 0.125")  # fmt: skip
    faster.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the run, which continues; default: a new one"
    )
    faster.add_argument("--json", action="store_true", help="print a JSON object")
    faster.add_argument("--model", metavar="VENDOR:NAME|URL#NAME", default="",
                        help="a model that proposes steps, too: openai, anthropic, google, a server")  # fmt: skip
    faster.add_argument("--tokens", type=positive, default=500_000, metavar="N",
                        help="what the model may take; default: 500000")  # fmt: skip
    for sub in (known, faster):
        sub.add_argument("--size", dest="sizes", action="append", type=size, default=[], metavar="NAME=VALUE",
                         help="a size of the kernel's tensors, or a number that it takes")  # fmt: skip
    for sub in (check, build, mutant, report, repairer):
        sub.add_argument("--limit", type=seconds, metavar="S",
                         help="work that a proof may take, in seconds of a processor")  # fmt: skip
    for sub in (check, build):
        sub.add_argument("--accept", action="append", type=acceptable, default=[], metavar="CODE",
                         help="release a kernel after a test, though its values are unknown: spec-unknown")  # fmt: skip
    for sub in (check, show, build, mutant, report, repairer, known, faster):
        sub.add_argument("-D", dest="constants", action="append", type=definition, default=[], metavar="NAME=VALUE",
                         help="the value of a constexpr parameter")  # fmt: skip
        sub.add_argument("--alignment", type=int, choices=ALIGNMENTS, metavar="BYTES",
                         help=f"of all tensors and their rows; default: {ALIGNMENTS[0]}")  # fmt: skip
    explain = command("explain", "explain", "explain an error code; without one, list all codes")
    explain.add_argument("code", nargs="?", metavar="CODE")
    forms = "'Sw<3,3,3> o 0 o (8,64):(64,1)' or '[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]'"
    draw = command("layout", "draw", f"draw a layout, such as {forms}")
    draw.add_argument("notation", metavar="NOTATION")
    draw.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    draw.add_argument("--element-bytes", type=int, choices=(1, 2, 4, 8), help="colour by shared-memory bank")
    server = command("lsp", "lsp", "serve an editor: diagnostics, quick fixes and hovers (needs the extra `lsp`)")
    server.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    command("mcp", "mcp", "offer these commands to a coding agent as tools (needs the extra `agents`)")
    command("demo", "demo", "prove and run a kernel on this machine's CPU, then see a wrong one refuted")
    return parser
