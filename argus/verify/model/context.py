"""The known facts about a kernel's sizes and program ids, as a set of parameters, and questions asked under them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import gcd
from typing import TypeVar

from argus.ir.contents import possible
from argus.ir.expr import Const, Expr, Op, Param
from argus.ir.nodes import Assume, Kernel, Precondition, Requires, Scalar
from argus.ir.types import boolean
from argus.verify.model.deciding import deciding, rounded
from argus.verify.model.formulas import between, equal, multiple
from argus.verify.model.isl import Map, Set, isl
from argus.verify.model.translator import NonAffine, Translator
from argus.verify.model.uses import Use, facts

_Relation = TypeVar("_Relation", isl.Map, isl.Set)


class Known:
    """The known facts as parameter sets: `set` about sizes and program ids, `sizes` about sizes alone.

    The sets do not contain upper limits of the sizes, which would then be in every set. So a proof also holds for
    greater sizes. A counterexample with sizes beyond the limits does not count: the simulator refuses to replay it.
    """

    def __init__(
        self, kernel: Kernel, translator: Translator, definitions: Sequence[Expr], lean: bool, uses: Sequence[Use] = ()
    ) -> None:
        """Collect the facts; see `relations.Model` for the parameters. `uses`: numbers that every block loads."""
        self._kernel, self._translator, self._uses, self._lean = kernel, translator, uses, lean
        self._parts: dict[frozenset[str], Set] = {}
        conditions = [f"0 <= {translator.integer(Param(name), ())}" for name in kernel.sizes]
        unsigned = (p for p in kernel.params if isinstance(p, Scalar) and p.dtype.modular)
        conditions += [self._of_type(p) for p in unsigned]
        conditions += self._alignments(rounded(kernel) if lean else None)
        for precondition in kernel.preconditions:
            for each in _conjuncts(precondition):
                with suppress(NonAffine):  # leaving out facts is sound
                    conditions.append(self._precondition_text(each))
        self.sizes = self._of_all(conditions)
        self.set = self.sizes.intersect(self._of_all(self._block_range()))
        if lean:
            self.set = _of_parameters(self.set, frozenset(translator.integer(e, ()) for e in deciding(kernel)))
        self._definitions = [translator.condition(d, ()) for d in definitions]

    def _of_type(self, scalar: Scalar) -> str:
        """Return the condition that an unsigned number is in the range of its type."""
        number = self._translator.integer(Param(scalar.name, scalar.dtype), ())
        return between(number, "0", str(2**scalar.dtype.bits))

    def narrow(self, more: Set) -> None:
        """Add a condition to the known facts."""
        self.set = self.set.intersect(more)
        self._parts.clear()

    def _of_all(self, conditions: Sequence[str]) -> Set:
        return self._translator.facts(*conditions)

    def _alignments(self, needed: Mapping[Param, int] | None = None) -> list[str]:
        """Conditions on row lengths that follow from the alignments of tensors, as isl text. `needed`: of these
        parameters only, and only that they are multiples of divisors of these numbers."""
        conditions = []
        for tensor in self._kernel.tensors:
            lanes = max(1, tensor.alignment // tensor.dtype.bytes)
            for extent, stride in zip(tensor.shape, tensor.strides, strict=True):
                asked = lanes if needed is None else needed.get(extent, 1) if isinstance(extent, Param) else 1
                if stride == Const(1, stride.dtype) and (common := gcd(lanes, asked)) > 1:
                    conditions.append(multiple(self._translator.integer(extent, ()), common))
        return conditions

    @cached_property
    def contents(self) -> Set:
        """The declared facts about the numbers that every block loads. The model's other sets do not contain them.

        A lean model keeps only the facts that are one basic set each, because a fact with several cases would multiply
        the pieces of sets.
        """
        found = []
        for fact in facts(self._kernel, self._uses):
            with suppress(NonAffine):
                text = self._translator.condition(fact, ())
                if not self._lean or self._of_all([text]).n_basic_set() == 1:
                    found.append(text)
        return self._of_all(found)

    @cached_property
    def possible(self) -> Set:
        """All known facts, including those that a lean model's sets leave out."""
        blocks = self._of_all([*self._block_range(), *self._alignments()])
        return blocks.intersect(self.sizes).intersect(self.defined)

    @cached_property
    def defined(self) -> Set:
        """The set that the definitions of scalars allow."""
        return self._of_all(self._definitions)

    def _precondition_text(self, precondition: Precondition) -> str:
        """Return the condition on the sizes that a precondition implies, as isl text.

        A declaration of an index tensor's contents implies that, if the tensor has elements, they have possible values.
        """
        if isinstance(precondition, (Requires, Assume)):
            return self._translator.condition(precondition.cond, ())
        some = possible(self._kernel, precondition)
        return "true" if some is None else self._translator.condition(some, ())

    def _block_range(self) -> list[str]:
        """Conditions that the program ids lie in the grid, as isl text."""
        conditions = []
        for own in self._kernel.program_ids:
            axis, pid = own.axis, self._translator.integer(own, ())
            if self._kernel.grid is None:
                conditions.append(between(pid, "0", str(2**31 - 1)))
            elif axis < len(self._kernel.grid):
                extent = self._translator.integer(self._kernel.grid[axis], ())
                conditions.append(between(pid, "0", extent))
            else:
                conditions.append(equal(pid, "0"))
        return conditions

    def known(self, found: _Relation) -> _Relation:
        """Restrict a set or relation that was made from schedules to the context, and order its parameters alike."""
        return found.align_params(self.set.get_space()).intersect_params(self.set)

    def nothing(self, found: _Relation) -> bool:
        """Return True if a set or relation that was made from schedules has no point in the context."""
        if found.is_empty():
            return True
        found = found.drop_unused_params()
        return bool(found.intersect_params(self._of(found)).is_empty())

    def same(self, a: Map, b: Map) -> bool:
        """Return True if two relations that were made from schedules are equal in the context."""
        if a.is_equal(b):
            return True
        context = self._of(a.union(b).drop_unused_params())
        return bool(a.intersect_params(context).is_equal(b.intersect_params(context)))

    def simply(self, found: _Relation) -> _Relation:
        """Remove from `found` the constraints that the context implies, then the parameters it no longer depends on."""
        found = found.drop_unused_params()
        return found.gist_params(self._of(found)).drop_unused_params()

    def _of(self, found: _Relation) -> Set:
        """Return the context projected onto the parameters of `found`."""
        count = found.dim(isl.dim_type.param)
        names = frozenset(str(found.get_dim_name(isl.dim_type.param, i)) for i in range(count))
        if names not in self._parts:
            self._parts[names] = _of_parameters(self.set, names)
        return self._parts[names]


def _conjuncts(precondition: Precondition) -> list[Precondition]:
    """The conditions that a precondition joins by "and": each is a fact of its own."""
    if isinstance(precondition, (Requires, Assume)):
        match precondition.cond:
            case Op(op="and", args=args, dtype=dtype) if dtype == boolean:
                return [found for each in args for found in _conjuncts(replace(precondition, cond=each))]
    return [precondition]


def _of_parameters(context: Set, names: Collection[str]) -> Set:
    """Project a parameter set onto some of its parameters."""
    for position in reversed(range(context.dim(isl.dim_type.param))):
        if context.get_dim_name(isl.dim_type.param, position) not in names:
            context = context.project_out(isl.dim_type.param, position, 1)
    return context.coalesce()
