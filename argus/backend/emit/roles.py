"""The roles of a kernel: a branch for each, chosen by the number of the warp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from argus.backend.emit.alike import NUMBER, as_one
from argus.backend.emit.declarations import counts, opening
from argus.backend.emit.flight import start, used
from argus.backend.emit.scope import Writer
from argus.ir.machine import H200, WARPGROUP
from argus.ir.nodes import Kernel, Role, Roles, Stmt

Emit = Callable[[tuple[Stmt, ...], Writer], None]
"""Emits statements, which may contain loops and branches."""

_REGISTER_UNIT = 8
"""Number of registers of a thread that are assigned at once (PTX ISA, setmaxnreg)."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """Roles that share a text, and the function that returns its lines at a depth."""

    roles: tuple[Role, ...]
    lines: Callable[[int], list[str]]

    @property
    def end(self) -> int:
        """The first warp behind the branch's."""
        return self.roles[-1].first_warp + self.roles[-1].num_warps


def emit_roles(stmt: Roles, writer: Writer, emit: Emit) -> None:
    """Emit a branch for each role, with `emit`. Roles whose texts are alike share a branch.

    Registers are assigned to whole warpgroups, including idle warps.
    """
    kernel = writer.kernel
    writer.line(f"const int warp = argus::uniform(argus::thread_id() / {kernel.warp_size});")
    lead = ""
    for group in _of_warpgroups(_branches(stmt, writer, emit)):
        first, last = group[0].roles[0], group[-1].roles[-1]
        end = last.first_warp + last.num_warps
        reach = end if first.registers is None else -(-end // WARPGROUP) * WARPGROUP
        with writer.block(f"{lead}if ({_of_warps(first.first_warp, reach, kernel)})"):
            _redistribute(first, writer)
            inner = ""
            for branch in group:
                with writer.block("" if reach == end == branch.end else f"{inner}if (warp < {branch.end})"):
                    writer.lines += branch.lines(writer.depth)
                inner = "else "
        lead = "else "


def _of_warpgroups(branches: Iterator[_Branch]) -> list[list[_Branch]]:
    """Return the branches of roles, those that share a warpgroup together."""
    groups: list[list[_Branch]] = []
    for branch in branches:
        if groups and branch.roles[0].first_warp % WARPGROUP:
            groups[-1].append(branch)
        else:
            groups.append([branch])
    return groups


def _branches(stmt: Roles, writer: Writer, emit: Emit) -> Iterator[_Branch]:
    """Yield the branches, in order."""
    declared = used(tuple(s for s in writer.kernel.body if s is not stmt))

    def alone(role: Role) -> Callable[[int], list[str]]:
        first = role.first_warp * writer.kernel.warp_size
        thread = f"argus::thread_id() - {first}" if first else "argus::thread_id()"
        return lambda depth: _role(role, stmt.own_barrier(role), thread, declared, writer, depth, emit)

    for group in _side_by_side(stmt.roles):
        shared = _shared_branch(group, stmt, declared, writer, emit)
        if shared is not None:
            yield _Branch(group, partial(_indented, shared))
            continue
        yield from (_Branch((role,), alone(role)) for role in group)


def _side_by_side(roles: tuple[Role, ...]) -> list[tuple[Role, ...]]:
    """Return runs of consecutive roles with equal numbers of warps and registers, each role of whole warpgroups."""
    groups: list[tuple[Role, ...]] = []
    for role in roles:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and (role.num_warps, role.registers) == (last.num_warps, last.registers)
            and role.first_warp == last.first_warp + last.num_warps
            and role.num_warps % WARPGROUP == 0
        ):
            groups[-1] = (*groups[-1], role)
        else:
            groups.append((role,))
    return groups


def _shared_branch(
    group: tuple[Role, ...], stmt: Roles, declared: frozenset[str], writer: Writer, emit: Emit
) -> list[str] | None:
    """Return lines, not indented, that equal those of role i where `role_number` is i; None if there are none."""
    if len(group) == 1:
        return None
    kernel, warps = writer.kernel, group[0].num_warps
    own = [[f.name for f in kernel.fragments if f.name in used(role.body) - declared] for role in group]
    if len({name for names in own for name in names}) < sum(map(len, own)) or len(set(map(len, own))) > 1:
        return None
    names = [{writer.names[n]: writer.names[m] for n, m in zip(names, own[0], strict=True)} for names in own]
    first, size = group[0].first_warp, warps * kernel.warp_size
    start = f" - {first * kernel.warp_size}" if first else ""
    thread = f"argus::thread_id(){start} - {NUMBER} * {size}"
    texts = [_role(role, stmt.own_barrier(role), thread, declared, writer, 0, emit)[1:] for role in group]
    lines = as_one(texts, names)
    if lines is None:
        return None
    number = f"const int {NUMBER} = {f'(warp - {first})' if first else 'warp'} / {warps};"
    return [f"// {', '.join(role.name for role in group)}", number, *lines]


def _indented(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line if line and not line.startswith("#line") else line for line in lines]


def _role(
    role: Role, barrier: int, thread: str, declared: frozenset[str], writer: Writer, depth: int, emit: Emit
) -> list[str]:
    """Return the lines of a role. The first line names the role. `thread` is the C++ text that computes its threads'
    numbers."""
    kernel = writer.kernel
    inner = Writer(
        kernel, writer.names, writer.natural, role.num_warps * kernel.warp_size,
        start(role.body, (f.name for f in kernel.fragments)), writer.least, barrier, depth=depth,
    )  # fmt: skip
    emit(role.body, inner)
    body, inner.lines = inner.lines, []
    inner.line(f"// {role.name}")
    own = used(role.body) - declared
    opening(inner, thread, tuple(f for f in kernel.fragments if f.name in own))
    counts(role.body, inner)
    return [*inner.lines, *body]


def _of_warps(first: int, end: int, kernel: Kernel) -> str:
    """Return the C++ condition that the warp's number is in [`first`, `end`)."""
    conditions = [f"warp >= {first}"] if first else []
    conditions += [f"warp < {end}"] if end < kernel.num_warps else []
    return " && ".join(conditions) or "true"


def _redistribute(role: Role, writer: Writer) -> None:
    """Emit the request for more registers from the block's pool, or the return of registers that a role does not need.

    A block starts with the multiprocessor's registers divided evenly among its threads. In a small block every thread
    has the maximum, and nothing is emitted.
    """
    if role.registers is None:
        return
    start = H200.registers // writer.kernel.num_threads // _REGISTER_UNIT * _REGISTER_UNIT
    if start <= H200.thread_registers and role.registers != start:
        verb = "raise" if role.registers > start else "lower"
        writer.line(f"argus::{verb}_registers<{role.registers}>();")
