"""The commands of the command line and their flags."""

from __future__ import annotations

import argparse
from pathlib import Path

from argus.cli.arguments import acceptable, definition, number, positive, seconds, size
from argus.ir.target import TARGETS
from argus.ir.types import ALIGNMENTS

Parser = argparse.ArgumentParser
_FILE = "FILE[::KERNEL]"


class _Version(argparse.Action):
    """Prints the version. The package's metadata is read only when it is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_others: object) -> None:
        from argus.cli.version import installed_version

        print(f"argus {installed_version()}")
        parser.exit()


def parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(prog="argus", description="Prove how data moves through GPU kernels.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, module: str, help: str) -> Parser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(module=module)
        return sub

    _check(command("check", "check", "prove every kernel of some files, or show why one is wrong"))
    show = command("show", "show", "print the explicit kernel that policies make: it can be changed, and checked again")
    _one_kernel(show)
    _constants(show)
    _build(command("build", "build", "prove kernels and write their source, machine code and resource report"))
    _report(command("report", "report", "prove kernels, and write one page about them"))
    _mutate(command("mutate", "mutate", "make small edits of a kernel, and count those that the proof catches"))
    _repair(command("repair", "repair", "look for an edit that makes a wrong kernel right, and prove it"))
    _annotate(command("annotate", "annotate", "find the tags and assertions that hold for a kernel, and prove them"))
    _knowledge(
        command("knowledge", "knowledge", "find what is known about making kernels fast, and what applies to one")
    )
    _optimize(command("optimize", "optimize", "look for a faster kernel that is proved to compute the same"))
    explain = command("explain", "explain", "explain an error code; without one, list all codes")
    explain.add_argument("code", nargs="?", metavar="CODE")
    forms = "'Sw<3,3,3> o 0 o (8,64):(64,1)' or '[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]'"
    _layout(command("layout", "draw", f"draw a layout, such as {forms}"))
    server = command("lsp", "lsp", "serve an editor: diagnostics, quick fixes and hovers (needs the extra `lsp`)")
    _target(server)
    command("mcp", "mcp", "offer these commands to a coding agent as tools (needs the extra `agents`)")
    command("demo", "demo", "prove and run a kernel on this machine's CPU, then see a wrong one refuted")
    return parser


def _check(sub: Parser) -> None:
    sub.add_argument("files", nargs="+", metavar=_FILE)
    _target(sub)
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    form.add_argument("--sarif", action="store_true", help="print a SARIF 2.1 log")
    sub.add_argument("--exact", action="store_true",
                     help="prove each property of the kernel itself, on no simpler form of it; slower")  # fmt: skip
    opinion = "check answers of ISL with Z3, and the reverse; exit code 4 if they differ; slower"
    sub.add_argument("--second-opinion", action="store_true", help=opinion)
    _limit(sub)
    _accept(sub)
    _constants(sub)


def _build(sub: Parser) -> None:
    sub.add_argument("file", metavar=_FILE)
    sub.add_argument("--target", choices=list(TARGETS), required=True)
    sub.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("."), help="default: here")
    sub.add_argument("--package", metavar="DIR", type=Path, help="write a package for C of FILE::NAME instead")
    _limit(sub)
    _accept(sub)
    _constants(sub)


def _report(sub: Parser) -> None:
    _one_kernel(sub)
    sub.add_argument("-o", "--output", metavar="FILE", type=Path, default=Path("report.html"),
                     help="default: report.html")  # fmt: skip
    _limit(sub)
    _constants(sub)


def _mutate(sub: Parser) -> None:
    sub.add_argument("files", nargs="+", metavar=_FILE)
    _target(sub)
    sub.add_argument("--seed", type=int, default=0, metavar="S", help="seed by which mutants are drawn; default: 0")
    sub.add_argument("--count", type=positive, metavar="N", help="number of mutants that are drawn for each kernel")
    _json(sub, "a JSON list with an object for each kernel")
    _limit(sub)
    _constants(sub)


def _annotate(sub: Parser) -> None:
    _one_kernel(sub)
    _constants(sub)
    _json(sub, "a JSON list with an object for each kernel")
    _limit(sub)


def _repair(sub: Parser) -> None:
    _one_kernel(sub)
    sub.add_argument("--steps", type=positive, default=48, metavar="N", help="number of edits to try; default: 48")
    _json(sub, "a JSON list with an object for each kernel")
    _limit(sub)
    _constants(sub)


def _knowledge(sub: Parser) -> None:
    sub.add_argument("query", nargs="*", metavar=f"QUERY|{_FILE}", help="words, or a kernel; default: all")
    _target(sub, "sm_90a")
    _json(sub, "a JSON list with an object for each entry")
    _sizes(sub)
    _constants(sub)


def _optimize(sub: Parser) -> None:
    sub.add_argument("file", metavar=_FILE)
    sub.add_argument("--target", choices=list(TARGETS), required=True)
    sub.add_argument("--minutes", type=seconds, default=5.0, metavar="M", help="time of the whole run; default: 5")
    sub.add_argument("--steps", type=positive, default=1000, metavar="N",
                     help="largest number of candidates; default: 1000")  # fmt: skip
    sub.add_argument("--workers", type=positive, metavar="N",
                     help="number of proofs at a time; default: one for each core")  # fmt: skip
    sub.add_argument("--number", dest="numbers", action="append", type=number, default=[], metavar="NAME=VALUE",
                     help="a float that the kernel takes; default: 0.125")  # fmt: skip
    sub.add_argument("--out", type=Path, metavar="DIR",
                     help="folder of the run; a run that it contains is continued; default: a new folder")  # fmt: skip
    _json(sub, "a JSON object")
    sub.add_argument("--model", metavar="VENDOR:NAME|URL#NAME", default="",
                     help="a model that proposes steps, too: openai, anthropic, google, a server")  # fmt: skip
    sub.add_argument("--tokens", type=positive, default=500_000, metavar="N",
                     help="largest number of tokens that the model may use; default: 500000")  # fmt: skip
    _sizes(sub)
    _constants(sub)


def _layout(sub: Parser) -> None:
    sub.add_argument("notation", metavar="NOTATION")
    sub.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    sub.add_argument("--element-bytes", type=int, choices=(1, 2, 4, 8), help="colour by shared-memory bank")


# ---------------------------------------------------------------------------- flags of several commands


def _one_kernel(sub: Parser) -> None:
    sub.add_argument("file", metavar=_FILE)
    _target(sub)


def _target(sub: Parser, default: str = "sm_80") -> None:
    sub.add_argument("--target", choices=list(TARGETS), default=default, help=f"default: {default}")


def _json(sub: Parser, what: str) -> None:
    sub.add_argument("--json", action="store_true", help=f"print {what}")


def _limit(sub: Parser) -> None:
    sub.add_argument("--limit", type=seconds, metavar="S",
                     help="work that a proof may take, in seconds of a processor")  # fmt: skip


def _accept(sub: Parser) -> None:
    sub.add_argument("--accept", action="append", type=acceptable, default=[], metavar="CODE",
                     help="release a kernel after a test, though its values are unknown: spec-unknown")  # fmt: skip


def _sizes(sub: Parser) -> None:
    sub.add_argument("--size", dest="sizes", action="append", type=size, default=[], metavar="NAME=VALUE",
                     help="a size of the kernel's tensors, or a number that it takes")  # fmt: skip


def _constants(sub: Parser) -> None:
    sub.add_argument("-D", dest="constants", action="append", type=definition, default=[], metavar="NAME=VALUE",
                     help="the value of a constexpr parameter")  # fmt: skip
    sub.add_argument("--alignment", type=int, choices=ALIGNMENTS, metavar="BYTES",
                     help=f"alignment of all tensors and their rows; default: {ALIGNMENTS[0]}")  # fmt: skip
