"""`torch.compile(model, backend="argus")`: groups of operators become proved kernels, and the rest is left to
PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from argus.diagnostic import LaunchError
from argus.graph import capture, fallback
from argus.graph.assemble import Step, assemble, subgraph
from argus.graph.calls import call_library
from argus.graph.channels import keep_channels_last
from argus.graph.choice import why_left
from argus.graph.compare import DIFFERENT, SAME, Different, compare_all
from argus.graph.costs import costly_part
from argus.graph.decompose import decompositions
from argus.graph.entries import of_graph, of_kernel, of_left, of_library, request
from argus.graph.group import Group
from argus.graph.kernel import Generator, KernelText, generate, is_read_by_boxes
from argus.graph.launch import Kernel
from argus.graph.options import Options
from argus.graph.owner import owner_of_trace, owns, why_nothing
from argus.graph.partition import Apart, Partition, narrowest, partition
from argus.graph.prove import Outcome, Proofs
from argus.graph.provers import Provers
from argus.graph.recurrent import take_recurrent
from argus.graph.repeated import repeat_pixels
from argus.graph.replay import replayed
from argus.graph.report import Entry, Graph, Report, measure
from argus.graph.rewrites import rewrite
from argus.graph.row import NotExpressible
from argus.graph.space import Mismatch
from argus.graph.views import A_VIEW
from argus.graph.widened import widen_where_read
from argus.runtime import jit
from argus.runtime.device import target_of


@dataclass(frozen=True)
class Survey:
    """A survey of a model for a target that need not be present. Without `prove`, kernels are generated but not proved.
    """

    target: str
    prove: bool = True


class Backend:
    """A backend of `torch.compile`. It keeps a record of each graph for reports.

    With a `survey`, nothing is launched. The graph itself runs, so tensors may be fake ones.
    """

    def __init__(self, generator: Generator | None = None, survey: Survey | None = None) -> None:
        self.generator, self.survey = generator, survey
        self.graphs: list[Graph] = []

    def __call__(
        self, gm: torch.fx.GraphModule, example: Sequence[Any], *, options: Any = None, mode: str | None = None
    ) -> Any:
        """Compile a graph that Dynamo traced, including gradients if they are needed."""
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        chosen, owner = Options.of(options, mode), owner_of_trace()
        if why := take_recurrent(gm):
            self.graphs.append(Graph("eager", (of_graph("recurrent layers", why),), owner))
            return gm.forward
        provers = Provers(chosen.workers)
        compiled = partial(self.compiled, options=chosen, owner=owner, given=len(example), provers=provers)
        with provers:
            if self.survey is None or self.survey.prove:
                provers.start_early()
            gm = keep_channels_last(gm)
            repeat_pixels(gm)
            call_library(gm)
            return aot_autograd(
                fw_compiler=partial(compiled, name="forward"),
                bw_compiler=partial(compiled, name="backward"),
                inference_compiler=partial(compiled, name="inference"),
                decompositions=decompositions(),
                partition_fn=min_cut_rematerialization_partition,
            )(gm, example)

    def compiled(
        self, gm: torch.fx.GraphModule, example: Sequence[Any], *, name: str, options: Options, owner: Any, given: int,
        provers: Provers,
    ) -> Callable[..., Any]:  # fmt: skip
        """Compile a graph of ATen operators. `given` is the number of inputs of the graph that Dynamo traced."""
        from torch._functorch._aot_autograd.utils import make_boxed_func

        compilation = _Compilation(gm, options, self.generator, self.survey, provers)
        result = gm
        with provers:
            if self.survey is None:
                result = compilation.run()
            else:
                compilation.look()
        call, note = make_boxed_func(result.forward), ""
        if options.cudagraphs and self.survey is None:
            call, note = replayed(gm, call, example, name, given)
        self.graphs = [g for g in self.graphs if g.owner() is not None]
        self.graphs.append(Graph(name, tuple(compilation.entries), owner, note))
        return call

    def report(self, model: Any) -> Report:
        """Report on the graphs of a compiled model or function. Raises ValueError if there are none."""
        own = [g for g in self.graphs if owns(model, g.owner())]
        if not own:
            raise ValueError(why_nothing(model))
        devices = {m.device for g in own for e in g.entries for m in e.tensors}
        on_gpu = bool(devices) and all(d.startswith("cuda") for d in devices)
        timed = on_gpu and not any(m.symbolic for g in own for e in g.entries for m in e.tensors)
        if timed:
            measure((e for g in own for e in g.entries if e.call is not None), "cuda")
        return Report(own, timed)


_Good = tuple[Group, KernelText]


class _Compilation:
    def __init__(
        self, gm: torch.fx.GraphModule, options: Options, generator: Generator | None, survey: Survey | None,
        provers: Provers,
    ) -> None:  # fmt: skip
        rewrite(gm, lambda node: is_read_by_boxes(node, _target(node, survey)))
        self.gm, self.options, self.generator, self.survey, self.provers = gm, options, generator, survey, provers
        self.texts: dict[Any, KernelText] = {}
        self.refused: dict[Any, str] = {}
        self.verdicts: dict[Any, str] = {}
        self.comparisons: dict[str, str] = {}
        self.apart: list[Apart] = []
        self.entries: list[Entry] = []

    def run(self) -> torch.fx.GraphModule:
        found, texts = self.settled()
        if self.options.prefer != "proved" and self.leave_slow(found, texts):
            found, texts = self.settled()
        steps = [self.launch(group, text) for group, text in zip(found.groups, texts, strict=True)]
        more, compiled = fallback.steps(self.gm.graph, found, self.options.fallback)
        self.leave(found, compiled)
        return assemble(self.gm, steps + more)

    @property
    def proves(self) -> bool:
        return self.survey is None or self.survey.prove

    def look(self) -> None:
        """Enter the kernels into the report that the graph would become, for a survey."""
        found, texts = self.settled()
        for group, text in zip(found.groups, texts, strict=True):
            self.entry(group, text)
        self.leave(found, ())

    def target(self, group: Group) -> str:
        """Return the target for which a group's kernel is made."""
        return _target(group.outputs[0][0], self.survey)

    def settled(self) -> tuple[Partition, list[KernelText]]:
        """Return a partition whose kernels are all proved. A group whose kernel is not proved is cut in two, and the
        parts are tried again."""
        while True:
            found = partition(self.gm.graph, self.refused, self.apart)
            costly = [apart for g in found.groups if (apart := costly_part(g)) is not None]
            if costly:
                self.apart += costly
                continue
            if widen_where_read(self.gm.graph, found.groups):
                continue
            texts, wrong = self.generated(found.groups)
            good = [(g, t) for g, t in zip(found.groups, texts, strict=True) if t is not None]
            wrong += self.unproved(good)
            if not wrong:
                return found, [t for _, t in good]
            for group, outcome in wrong:
                self.divide(group, outcome)

    def unproved(self, good: Sequence[_Good]) -> list[tuple[Group, Outcome]]:
        """Return the groups whose kernels are not proved, or whose specifications differ from PyTorch on small tensors.
        Both are found at the same time."""
        proofs = Proofs([request(t, self.target(g)) for g, t in good] if self.proves else (), self.provers)
        try:
            unlike = self.compared(good)
            outcomes = proofs.outcomes() if self.proves else [Outcome("proved")] * len(good)
        except BaseException:
            self.provers.stop()
            raise
        return [(g, u or o) for (g, _), o, u in zip(good, outcomes, unlike, strict=True) if u or o.verdict != "proved"]

    def compared(self, good: Sequence[_Good]) -> list[Outcome | None]:
        """Return why each group is left whose specification differs from PyTorch on small tensors; None for others."""
        results = compare_all([(group, text, self.target(group)) for group, text in good])
        for (_, text), result in zip(good, results, strict=True):
            if result.verdict == DIFFERENT and self.options.differences == "raise":
                raise Different(f"{text.name}: {result.reason}")
            self.comparisons[text.text] = result.verdict if result.verdict == SAME else result.reason
        return [Outcome("left", r.reason) if r.verdict == DIFFERENT else None for r in results]

    def generated(self, groups: Sequence[Group]) -> tuple[list[KernelText | None], list[tuple[Group, Outcome]]]:
        texts: list[KernelText | None] = []
        wrong = []
        for group in groups:
            try:
                texts.append(self.text(group))
            except (Mismatch, NotExpressible, LaunchError) as error:
                texts.append(None)
                reason = error.diagnostics[0].message if isinstance(error, LaunchError) else str(error)
                wrong.append((group, Outcome("left", reason)))
        return texts, wrong

    def text(self, group: Group) -> KernelText:
        """Return the kernel of a group. Groups that a new partition leaves as they were keep their kernels."""
        key = (tuple(group.nodes), group.outputs, tuple(group.reads.items()), group.widened)
        if key not in self.texts:
            self.texts[key] = generate(group, self.target(group), self.generator)
        return self.texts[key]

    def divide(self, group: Group, outcome: Outcome) -> None:
        """Forbid a group that is not proved as one kernel: cut it in two, or leave a single operator to PyTorch."""
        if len(group.nodes) == 1:
            self.refused[group.nodes[0]] = outcome.reason
            self.verdicts[group.nodes[0]] = outcome.verdict
        else:
            middle = narrowest(group)
            self.apart.append((frozenset(group.nodes[:middle]), frozenset(group.nodes[middle:])))

    def leave_slow(self, found: Partition, texts: Sequence[KernelText]) -> bool:
        """Refuse the convolutions, and with `prefer="fast"` the products, for which PyTorch is faster, by measurement.
        Return True if there are any."""
        known: dict[Any, str] = {}
        for group, text in zip(found.groups, texts, strict=True):
            if group.head is None or (group.window is None and self.options.prefer != "fast"):
                continue
            metas = tuple(p.meta for p in text.layout.reads)
            if (text.text, metas) not in known:
                call = self.kernel(group, text, "", lambda _: None)
                known[text.text, metas] = why_left(call, call.fallback, metas)
            if why := known[text.text, metas]:
                self.refused[group.head] = why
        return any(known.values())

    def kernel(self, group: Group, text: KernelText, path: str, told: Callable[[str], None]) -> Kernel:
        """Return the launch of a proved kernel."""
        read = [p.value for p in text.layout.reads]
        kernel = jit(request(text, self.target(group)).source(path or "<graph>"))
        return Kernel(kernel, text.layout, subgraph(group.nodes, read, group.outputs), told, group.scatter is not None)

    def launch(self, group: Group, text: KernelText) -> Step:
        """Return the step that launches a proved kernel."""
        entry = self.entry(group, text)
        entry.call = self.kernel(group, text, entry.path, entry.refused.append)
        return Step(group.nodes, [p.value for p in text.layout.reads], group.outputs, entry.call)

    def entry(self, group: Group, text: KernelText) -> Entry:
        """Enter a proved kernel into the report."""
        verdict = "proved" if self.proves else "generated"
        entry = of_kernel(group, text, request(text, self.target(group)), verdict, self.comparisons[text.text])
        self.entries.append(entry)
        return entry

    def leave(self, found: Partition, compiled: Collection[Any]) -> None:
        """Enter the remaining operators into the report. `compiled` are the operators that Inductor runs."""
        for node, reason in found.left.items():
            row = capture.row(node)
            if row is not None and row.left == A_VIEW:
                continue
            if capture.is_library(node):
                self.entries.append(of_library(node))
            else:
                verdict = self.verdicts.get(node, "left")
                self.entries.append(of_left(node, verdict, reason, "inductor" if node in compiled else "eager"))


def _target(node: Any, survey: Survey | None) -> str:
    """Return the target for which the kernel of a node is made."""
    meta = next(m for m in capture.results(node) if m is not None)
    return survey.target if survey is not None else target_of(meta.device)


argus = Backend()
"""The backend called "argus". `torch.compile` finds it by the package's entry point."""
