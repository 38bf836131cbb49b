"""Callable kernels: `kernel[grid](a, b, c, BLOCK=128)`, or `kernel(a, b, c)` on the declared grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial, wraps
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from argus import environment
from argus.backend.launch.plan import LaunchPlan
from argus.backend.launch.signature import Signature
from argus.diagnostic import ArgusError
from argus.numbered import number, numbered
from argus.runtime.argument import Argument
from argus.runtime.executable import CONSTEXPR, OPTIONAL, TENSOR, Executable, Parameter, Source, is_constant
from argus.runtime.planner import NUM_WARPS, Call, Grid, Planner, Situation, grid_of
from argus.runtime.reader import ABSENT, UNREADABLE, Cold, Prepared, Site, in_memory

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

_MAX_PLANS = 4096
"""Largest number of prepared launches that a kernel keeps. Each takes about two kilobytes, and half a kilobyte for each
set of addresses. Beyond this number, all of them are prepared again."""

_UNKNOWN = (KeyError, *UNREADABLE)

ComputedGrid = Callable[[dict[str, object]], "Grid | int"]


_Call = TypeVar("_Call", bound=Callable[..., Any])


def _without_our_frames(function: _Call) -> _Call:
    """Remove the compiler's frames from the tracebacks of its findings, so that the author's call remains.

    The frames stay with ARGUS_DEBUG=1 and above, and in exceptions that are not findings.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ArgusError as error:
            if environment.debug_level() >= 1:
                raise
            raise error.with_traceback(None) from error.__cause__

    return call  # type: ignore[return-value]


class JitKernel:
    """A kernel that is proved, built and launched when it is called.

    `kernel(*arguments)` launches the declared grid. `kernel[grid](*arguments)` launches the given numbers of blocks
    along the axes, or the numbers that `grid(constants)` returns. Arguments are PyTorch tensors on one device, or NumPy
    arrays (which run on the CPU), and Python numbers. Constexpr parameters are usually passed by keyword.

    Two keyword arguments are options, not kernel parameters. `num_warps=` overrides the decorator's.
    `check_index_tensors=True` reads and checks every index tensor whose contents the kernel restricts. A call returns
    nothing: the kernel writes to its output tensors. On a GPU it is queued on PyTorch's current stream.

    The first call for each combination of constants, `num_warps`, device and alignment proves and builds the kernel,
    unless it is in the disk cache. A kernel that is neither proved nor accepted by its decorator is not launched.

    Raises SourceError, VerificationError, ToolchainError, and LaunchError for arguments that break a
    precondition.
    """

    def __init__(self, name: str, source: Source, doc: str | None = None) -> None:
        self.__name__ = name
        self.__doc__ = doc
        self.source = source
        self._planner = Planner(source)
        self._plans: dict[Hashable, Prepared] = {}
        self._sites: dict[Hashable, Site] = {}
        self.number = number(self)

    def __repr__(self) -> str:
        return f"<argus kernel {self.__name__}>"

    def _repr_html_(self) -> str:
        """Return the kernel's name, parameters and description as HTML for a notebook."""
        try:
            given = ", ".join(f"{p.name}: {p.kind}" for p in self.parameters)
        except ArgusError:  # The text has mistakes, which the first call reports.
            given = "..."
        described = f"<pre>{escape(self.__doc__)}</pre>" if self.__doc__ else ""
        return f"<p><b>{escape(self.__name__)}</b>({escape(given)})</p>{described}"

    def __call__(self, *args: Argument, **kwargs: object) -> None:
        """Launch the kernel on the declared grid.

        The arguments are the kernel's parameters, by position or by name, with their annotated shapes and dtypes, and
        the options that the class describes.
        """
        # Written for few bytecodes. Keyword values are found by identity (sites keep them alive), because comparing
        # them would double the time.
        way = (None, len(args), *kwargs, *map(id, kwargs.values())) if kwargs else len(args)
        try:
            missed = self._sites[way].read(*args)
        except _UNKNOWN:
            missed = self
        if missed is not None:  # Not inside the handler, where a later error would show the first error as its context.
            self._call_slowly(missed, way, None, args, kwargs)

    def __getitem__(self, grid: Grid | int | ComputedGrid) -> Callable[..., None]:
        """Return the kernel bound to `grid`."""
        if grid.__class__ is tuple:
            return partial(self._on, grid)
        if callable(grid):
            return partial(self._on_computed, grid)
        return partial(self._on, grid_of(grid))

    def prepare(self, *args: Argument, **kwargs: object) -> LaunchPlan:
        """Return a launch plan for all calls with these shapes, strides, types, alignments, device and constants.

        Proves and builds the kernel first. The plan's `run` takes the tensors' addresses and the scalars, in order of
        declaration. Use it to keep launches yourself. Raises the errors of a call.
        """
        return self._planner.plan(None, self._planner.arrange(args, kwargs))

    def prepare_on(self, grid: Grid, *args: Argument, **kwargs: object) -> LaunchPlan:
        """Do the same as `prepare` for calls on `grid`."""
        return self._planner.plan(grid, self._planner.arrange(args, kwargs))

    @property
    def argus_text(self) -> object:
        """The text of the kernel, if it is known: programs that name the kernel read it."""
        return getattr(self.source, "text", None)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of declaration. Raises SourceError."""
        return self._planner.parameters

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the text only. A copy is proved and built, or found in the cache, when it is called."""
        return type(self), (self.__name__, self.source, self.__doc__)

    def situation(self, *args: Argument, **kwargs: object) -> Situation:
        """Return target, device, sizes and alignments of a call with these arguments. Raises for a wrong one."""
        return self._planner.situation(self._planner.arrange(args, kwargs))

    def build(
        self,
        target: str,
        *,
        alignment: Mapping[str, int] | None = None,
        num_warps: int | None = None,
        **constexprs: object,
    ) -> Executable:
        """Prove and build without launching. `alignment` maps tensors to bytes; tensors that it omits have 16.

        Raises SourceError, VerificationError, ToolchainError, and LaunchError for a target or an alignment that does
        not exist.
        """
        call = Call({}, constexprs, num_warps, False)
        return self._planner.ahead(call, target, {} if alignment is None else alignment)

    def as_torch_op(
        self,
        name: str,
        *,
        functional: bool = False,
        outputs: Mapping[str, Callable[..., Sequence[int]]] | None = None,
        num_warps: int | None = None,
        backward: Callable[..., torch.Tensor | tuple[torch.Tensor | None, ...] | None] | None = None,
        setup_context: Callable[..., None] | None = None,
        **constexprs: object,
    ) -> OpOverload:
        """Register the kernel as the PyTorch operator `name` ("namespace::name"): see `argus.torch.register`."""
        from argus.torch import register

        return register(
            self,
            name,
            functional=functional,
            outputs=outputs,
            num_warps=num_warps,
            constexprs=constexprs,
            backward=backward,
            setup_context=setup_context,
        )

    def declaration(self, *, num_warps: int | None = None, **constexprs: object) -> Signature:
        """Return parameters, sizes and grid, and which tensors are read and written. Proves nothing.

        Raises SourceError.
        """
        return self._planner.interface(Call({}, constexprs, num_warps, False), "cpu")

    def _on(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        # `__call__` with a grid. The code is repeated, because sharing it would cost every launch one more call.
        way = (grid, len(args), *kwargs, *map(id, kwargs.values())) if kwargs else (grid, len(args))
        try:
            missed = self._sites[way].read(*args)
        except _UNKNOWN:
            missed = self
        if missed is not None:
            self._call_slowly(missed, way, grid, args, kwargs)

    def _on_computed(self, grid: ComputedGrid, *args: Any, **kwargs: Any) -> None:
        constants = self._planner.constants(self._planner.arrange(args, kwargs))
        self._on(grid_of(grid(constants)), *args, **kwargs)

    def _again(self, grid: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if grid is None:
            self(*args, **kwargs)
        else:
            self._on(grid, *args, **kwargs)

    def _prepared(self, key: Hashable, grid: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        found = self._plans.get(key)
        if found is None:
            plan = self._planner.plan(grid, self._planner.arrange(args, kwargs))
            found = Prepared(plan.run, plan.written)
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = found
        return found

    @_without_our_frames
    def _call_slowly(
        self, missed: object, way: Hashable, grid: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Handle the first call of each kind, tensors passed by keyword, NumPy arrays, and wrong arguments.

        `missed` is the result of the call's site, or this kernel if there is no site or it cannot read the arguments.
        """
        if missed is self:
            if not in_memory((*args, *kwargs.values())):
                return operator_call(self, grid, args, kwargs)
            absent = tuple(i for i, a in enumerate(args) if a is None)
            if absent:
                way = way, absent
                missed = self._read(way, args)
        if missed is None:
            return
        if isinstance(missed, Cold):
            prepared = self._prepared(missed.key, grid, args, kwargs)
            site = self._sites[way]
            site.settle(prepared, args, missed.values)
            prepared.started([a for a, kind in zip(args, site.kinds, strict=True) if kind == TENSOR], missed.values)
            return
        call = self._planner.arrange(args, kwargs)
        declared = self._planner.parameters
        constants = {NUM_WARPS, *(p.name for p in declared if p.kind == CONSTEXPR)}
        constants |= {p.name for p in declared if p.kind == OPTIONAL and p.name in kwargs and kwargs[p.name] is None}
        if constants.issuperset(kwargs) and self._add_site(way, grid, args, kwargs):
            self._again(grid, args, kwargs)
            return
        runtime = tuple(call.runtime)
        leading = runtime == tuple(p.name for p in declared[: len(runtime)])
        if leading and len(args) < len(runtime) and not call.check_contents:
            named = {name: value for name, value in kwargs.items() if name in constants}
            self._again(grid, tuple(call.runtime.values()), named)
            return
        self._planner.launch(grid, call)

    def _read(self, way: Hashable, args: tuple[Any, ...]) -> object:
        """Return the result of the call's site, or this kernel if there is no site or it cannot read the arguments."""
        site = self._sites.get(way)
        try:
            return self if site is None else site.read(*args)
        except _UNKNOWN:
            return self

    def _add_site(
        self, way: Hashable, grid: Grid | None, args: tuple[Any, ...], constants: Mapping[str, object]
    ) -> bool:
        """Create the site of such calls. Return False if it exists already, or if the call cannot have a site.

        A call that cannot have a site is refused later.
        """
        try:
            if way in self._sites or not all(map(is_constant, constants.values())):
                return False
        except TypeError:  # The grid is not hashable, such as a list.
            return False
        if len(self._sites) >= _MAX_PLANS:
            self._sites.clear()
        # The constants are compared as text, because 1, 1.0 and True are equal, and so are 0.0 and -0.0.
        kinds = tuple(_kind(p, a) for p, a in zip(self._planner.parameters, args, strict=False))
        name = (grid, kinds, repr(constants))
        self._sites[way] = Site(kinds, name, constants)
        return True


def _kind(parameter: Parameter, argument: object) -> str:
    """Return the kind by which a site reads an argument."""
    if parameter.kind == OPTIONAL:
        return ABSENT if argument is None else TENSOR
    return parameter.kind


# ---------------------------------------------------------------------------- under torch.compile


def operator_call(kernel: JitKernel, grid: Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call the kernel as a PyTorch operator. Dynamo traces this function in place of a call."""
    import torch

    tensors_and_numbers: list[Any] = []
    constants = {name: value for name, value in kwargs.items() if name == NUM_WARPS}
    present = ""
    for place, parameter in enumerate(_declared(kernel.number).split()):
        name, kind = parameter.split(":")
        given = place < len(args) or name in kwargs
        value = args[place] if place < len(args) else kwargs.get(name)
        present += "0" if value is None and kind != CONSTEXPR else "1"
        if kind == CONSTEXPR:
            constants |= {name: value} if given else {}
        elif value is not None:
            tensors_and_numbers.append(value)
    name = _registered(kernel.number, present, **constants)
    getattr(torch.ops.argus_kernels, name).default(*tensors_and_numbers, list(grid or ()))


def _declared(kernel: int) -> str:
    """Return names and kinds of a kernel's parameters as text, because Dynamo keeps text as a constant."""
    return " ".join(f"{p.name}:{p.kind}" for p in numbered(kernel).parameters)


def _registered(kernel: int, present: str, **constants: object) -> str:
    """Return the name of a kernel's operator; register the operator if needed."""
    from argus.torch.operator import traced

    return traced(numbered(kernel), present, constants).partition("::")[2]


def _inlined(self: JitKernel, *args: Any, **kwargs: Any) -> None:
    operator_call(self, None, args, kwargs)


def _inlined_on(self: JitKernel, grid: Grid, *args: Any, **kwargs: Any) -> None:
    operator_call(self, grid, args, kwargs)


# Dynamo reads these attributes, which `torch.compiler.disable` and `assume_constant_result` set. PyTorch need not be
# imported.
JitKernel.__call__._torchdynamo_inline = _inlined  # type: ignore[attr-defined]
JitKernel._on._torchdynamo_inline = _inlined_on  # type: ignore[attr-defined]
JitKernel._on_computed._torchdynamo_disable = True  # type: ignore[attr-defined]
_declared._dynamo_marked_constant = True  # type: ignore[attr-defined]
_registered._dynamo_marked_constant = True  # type: ignore[attr-defined]
