"""The register budget: what the tiles that live at one time take in a thread."""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.ir.nodes import For, If, Kernel, Programs, Roles, Stmt
from argus.passes.fresh import touches
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem
from argus.source import Span

_REGISTER = 4  # bytes


def check_registers(kernel: Kernel) -> Kernel:
    """The kernel itself. Raises `LoweringError` if its register tiles cannot fit, whatever the compiler does.

    A tile lives from its first mention until just before its last, since a result may take the registers of an
    operand that dies; one that is mentioned both before a loop and in it lives through the whole loop.
    """
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            for role in stmt.roles:
                _check(replace(kernel, body=role.body), role.registers, f"role {role.name}")
            return kernel
    _check(kernel, None, None)
    return kernel


def _check(kernel: Kernel, budget: int | None, role: str | None) -> None:
    target = target_of(kernel)
    most = min(target.registers, budget or target.registers)
    sizes = {f.name: f.layout.num_values * f.dtype.bytes for f in kernel.fragments if f.layout is not None}
    lives = _lives(kernel, set(sizes))
    worst, holding = 0, frozenset[str]()
    for point in range(max((last for _, last in lives.values()), default=0) + 1):
        living = frozenset(n for n, (first, last) in lives.items() if first <= point < max(last, first + 1))
        total = sum(sizes[n] for n in living)
        if total > worst:
            worst, holding = total, living
    if worst > most * _REGISTER:
        largest = sorted(holding, key=lambda n: -sizes[n])[:4]
        raise LoweringError(
            problem(
                "register-budget",
                f"tiles that live together take {-(-worst // _REGISTER)} registers a thread, "
                f"and {role or target.name} has {most}",
                kernel.span,
                "use smaller tiles, or more warps to share them",
                tuple(Note(f"{n}: {-(-sizes[n] // _REGISTER)} registers", _span(kernel, n)) for n in largest),
            )
        )


def _lives(kernel: Kernel, wanted: set[str]) -> dict[str, tuple[int, int]]:
    """First and last position of every tile's life, statements counted in program order."""
    lives: dict[str, tuple[int, int]] = {}
    position = 0

    def note(used: set[str], first: int, last: int) -> None:
        for name in used & wanted:
            old = lives.get(name, (first, last))
            lives[name] = (min(old[0], first), max(old[1], last))

    def visit(body: tuple[Stmt, ...]) -> None:
        nonlocal position
        for stmt in body:
            position += 1
            note(touches(stmt), position, position)
            match stmt:
                case For(body=inner) | Programs(body=inner):
                    before, start = set(lives), position
                    visit(inner)
                    note({n for n in before if lives[n][1] > start}, start, position)
                case If(then=then, orelse=orelse):
                    visit(then)
                    visit(orelse)
                case _:
                    pass

    visit(kernel.body)
    return lives


def _span(kernel: Kernel, name: str) -> Span:
    return next(f.span for f in kernel.fragments if f.name == name)
