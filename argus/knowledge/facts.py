"""Facts about a kernel: counts in its text, its shape on a target and, with sizes, its bottleneck.

A profile adds facts that only a proof, a model or a run knows. Clauses of entries use the names defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from argus import compile
from argus.backend.launch.evaluate import Number
from argus.frontend import Options
from argus.frontend.surface import Binary, Call, Name, Subscript
from argus.ir.nodes import Kernel
from argus.knowledge.clause import Fact
from argus.knowledge.draft import Draft, every, expressions, given, statements
from argus.knowledge.rewrites.constants import warps
from argus.knowledge.rewrites.loops import operands
from argus.source import SourceFile
from argus.tuning.model import MODELS, estimate, occupancy
from argus.tuning.work import work_of

_STATING = ("spec", "tag", "assert_tags", "requires", "covers", "invariant")


def _count(*names: str) -> Callable[[Draft], int]:
    return lambda draft: sum(draft.called(c) in names for c in _computing(draft))


def _computing(draft: Draft) -> list[Call]:
    """Return the calls that a kernel carries out, without those of its specification."""
    return [c for s in statements(draft.function.body) for e in expressions(s) if draft.called(e) not in _STATING
            for c in every(e) if isinstance(c, Call)]  # fmt: skip


def _having(option: str, *names: str) -> Callable[[Draft], int]:
    return lambda draft: sum(given(c, option) is not None for c in draft.calls(*names))


def _loaded_operands(draft: Draft) -> int:
    wanted = operands(draft)
    found = [s for s in statements(draft.function.body) for e in expressions(s) if draft.called(e) == "load"]
    return sum(any(t.id in wanted for t in getattr(s, "targets", ())) for s in found)


def _divisions(draft: Draft) -> int:
    """Count the divisions of a name, a call or an operation by a name."""
    found = [e for s in statements(draft.function.body) for x in expressions(s) if draft.called(x) not in _STATING
             for e in every(x) if isinstance(e, Binary) and e.op == "/"]  # fmt: skip
    return sum(isinstance(q.right, Name) and isinstance(q.left, Name | Call | Binary) for q in found)


def _gathers(draft: Draft) -> int:
    """Count the loads and stages whose rows a loaded tile of indices gives."""
    tiles = {t.id for s in statements(draft.function.body) for e in expressions(s)
             if draft.called(e) == "load" for t in getattr(s, "targets", ())}  # fmt: skip
    views = [c.args[0] for c in _computing(draft) if draft.called(c) in ("load", "stage") and c.args]
    return sum(any(isinstance(i, Name) and i.id in tiles for i in v.items) for v in views if isinstance(v, Subscript))


_OF_TEXT: Mapping[str, Callable[[Draft], int]] = {
    "products": _count("mma"),
    "loads": _count("load"),
    "stores": _count("store"),
    "staged": _count("stage"),
    "shared_tiles": _count("shared"),
    "atomics": _count("atomic_add", "atomic_max", "atomic_min"),
    "reductions": _count("sum", "max", "min"),
    "exponentials": _count("exp"),
    "sigmoids": _count("sigmoid"),
    "transposes": _count("trans"),
    "selections": _count("where"),
    "barriers": _count("barrier"),
    "turns": _count("begin_turns"),
    "divisions": _divisions,
    "loaded_operands": _loaded_operands,
    "gathers": _gathers,
    "loops": lambda draft: len(draft.loops()),
    "plain_loops": _count("range"),
    "pipelines": _count("pipelined"),
    "producers": _having("producer_warps", "pipelined"),
    "axes": lambda draft: sum(len(c.args) for c in draft.calls("grid")),
    "persistent": _having("persistent", "grid"),
    "grouped": _having("group", "grid"),
    "clusters": _having("cluster", "grid"),
    "scheduled": _having("schedule", "grid"),
    "layouts": _having("layout", "shared"),
    "warps": warps,
    "stages": lambda draft: int(draft.constants().get("STAGES") or 0),
}

_OF_SHAPE = ("threads", "registers", "shared_bytes", "occupancy", "bytes_per_flop", "blocks", "rounds")
_OF_PROFILE = ("bank_conflicts", "uncoalesced", "unapplied_policies")
_CODES = {"bank-conflicts": "bank_conflicts", "uncoalesced-access": "uncoalesced",
          "policy-not-applied": "unapplied_policies"}  # fmt: skip

FACTS = frozenset({*_OF_TEXT, *_OF_SHAPE, *_OF_PROFILE, "target", "bound"})
"""Every name that a clause may use. `bound` is the bottleneck that the performance model names."""


def facts_of_text(text: str, name: str, target: str) -> dict[str, Fact]:
    """Count what the text of a kernel contains. Raises `SourceError`."""
    draft = Draft.of(text, name)
    return {"target": target, **{fact: count(draft) for fact, count in _OF_TEXT.items()}}


def facts_of_shape(explicit: Kernel, sizes: Mapping[str, Number]) -> dict[str, Fact]:
    """Return the shape of a lowered kernel on its target at some sizes; without a model or a grid, only its threads."""
    model = MODELS.get(explicit.target or "")
    if model is None or explicit.grid is None:
        return {"threads": explicit.num_threads}
    work = work_of(explicit, sizes)
    found, (resident, _) = estimate(work, model), occupancy(work, model.machine)
    flops = (work.matrix_flops + work.scalar_flops) * work.blocks
    return {"threads": work.threads, "registers": work.registers, "shared_bytes": work.shared_bytes,
            "occupancy": round(resident * work.threads / model.machine.threads, 3),
            "bytes_per_flop": work.all_bytes / flops if flops else float("inf"), "blocks": work.blocks,
            "rounds": work.blocks / max(1, resident * model.machine.multiprocessors),
            "bound": found.bound.replace(" ", "-")}  # fmt: skip


def facts_of_profile(codes: Iterable[str]) -> dict[str, Fact]:
    """Count the performance warnings among the codes of a proof's findings."""
    counts: dict[str, Fact] = dict.fromkeys(_OF_PROFILE, 0)
    for code in codes:
        if code in _CODES:
            counts[_CODES[code]] = int(counts[_CODES[code]]) + 1
    return counts


def facts_of(
    source: SourceFile, name: str, options: Options, sizes: Mapping[str, Number] | None = None
) -> dict[str, Fact]:
    """Return everything that is known about a kernel before it runs. Raises `ArgusError` if the text does not lower."""
    explicit = compile.lower(compile.elaborate(source, name, options), options.target)
    report = compile.verify(explicit)
    shape = {"threads": explicit.num_threads} if sizes is None else facts_of_shape(explicit, sizes)
    profile = facts_of_profile(finding.code for finding in report.diagnostics)
    return {**facts_of_text(source.text, name, options.target), **shape, **profile}
