"""Readers: get the addresses of a call's PyTorch tensors, find the launch prepared for such tensors, and run it.

A reader is generated as straight-line Python code, because a loop over the arguments takes longer than the rest of a
launch. The code contains only positions of arguments, nothing from a kernel or a call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR

ABSENT = "absent"
"""The kind of an argument that is None, for an optional tensor."""

Check = Callable[..., bool]
"""Returns True if tensors equal those from which the check was made, in everything but their addresses that a plan
depends on."""

Run = Callable[[tuple[Number, ...]], Any]
"""`run(values)` takes the tensors' addresses and then the scalars. It queues the launches and returns the call's
results."""

_HOT = 4
"""Number of launches that are tried before a key is made. A check takes a tenth of the time of a key."""

_RENEWALS = 8

# A plan depends only on the last four bits of an address: kernels are specialised for alignments up to 16 bytes.
_TENSOR_KEY = "a{i}.shape, a{i}.stride(), a{i}.dtype, a{i}.device, a{i}.__class__, a{i}.is_neg(), p{i} & 15, "


def _never(*_tensors: Any) -> bool:
    return False


@dataclass(slots=True)
class Prepared:
    """A prepared launch, and the check that tells if it fits a call's tensors.

    `written` are the positions, among the tensors, of those that it writes. `renewals` is the number of times that the
    check may still be replaced, for tensors that are equal for a plan but not for PyTorch (one may need a gradient).
    """

    run: Run
    written: tuple[int, ...] = ()
    check: Check = _never
    renewals: int = _RENEWALS

    def started(self, tensors: Sequence[Any], values: tuple[Number, ...]) -> Any:
        """Count writes of the tensors, run the launch, and return its result. Raises LaunchError for a tensor without
        memory."""
        if 0 in values[: len(tensors)]:
            _refuse_freed(tensors)
        count_writes(tensors[i] for i in self.written)
        return self.run(values)


def _ordinary(x: Any) -> None:
    """Raise AttributeError or TypeError for an object without an address that may be read."""
    if type(x).__torch_dispatch__ is not sys.modules["torch"]._C._disabled_torch_dispatch_impl:
        raise TypeError(f"a {type(x).__name__} has no address")


def in_memory(arguments: Iterable[Any]) -> bool:
    """Return False if an argument is a tensor without memory: a fake tensor, or one inside a function transform."""
    torch = sys.modules.get("torch")
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)] if torch is not None else []
    if torch is None or not tensors:
        return True
    return torch._C._functorch.peek_interpreter_stack() is None and not any(
        type(t).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl or torch._is_functional_tensor(t)
        for t in tensors
    )


class _NoForward:
    """Stands for `torch.autograd.forward_ad` where PyTorch is not imported."""

    _current_level = -1


def _forward() -> Any:
    return sys.modules.get("torch.autograd.forward_ad", _NoForward)


def is_dual(x: Any) -> bool:
    """Return True if forward-mode differentiation follows a tensor."""
    forward = _forward()
    return forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None


def count_writes(tensors: Iterable[Any]) -> None:
    """Tell PyTorch that these tensors are written, so that a later backward pass does not use stale values.

    Inference tensors count no writes.
    """
    counting = [t for t in tensors if not t.is_inference()]
    if counting:
        sys.modules["torch"]._C._increment_version(counting)


def _refuse_freed(tensors: Sequence[Any]) -> None:
    for place, x in enumerate(tensors):
        if x.numel() and not x.data_ptr():
            what = f"tensor number {place} of the call has elements and no memory"
            help = "its storage was freed (`untyped_storage().resize_(0)`): give it memory before the call"
            raise LaunchError.of("argument-type", what, help)


def _counter(tensors: Sequence[Any]) -> Callable[[Any], None]:
    """Return the function that counts writes of a tuple of tensors like these; a check recognises such tensors."""
    if any(t.is_inference() for t in tensors):
        return count_writes
    count: Callable[[Any], None] = sys.modules["torch"]._C._increment_version
    return count


@dataclass(frozen=True, slots=True)
class Cold:
    """A call that no check recognised. Calls with equal keys share one `Prepared`."""

    key: Hashable
    values: tuple[Number, ...]


Reader = Callable[..., Any]
"""`reader(*arguments)` runs the launch prepared for such tensors and returns its result, or `Cold` if there is none.

It raises AttributeError or TypeError for an object that is no PyTorch tensor, and RuntimeError for a tensor without an
address.
"""

UNREADABLE = (AttributeError, RuntimeError, TypeError)


class Site:
    """Calls with the same grid, number of arguments and keywords.

    `hot` holds the latest launches: the check, the function that runs, and the function that counts the writes of the
    tensors at the positions `written`.
    """

    __slots__ = ("_name", "hot", "keywords", "kinds", "read", "written")

    def __init__(self, kinds: tuple[str, ...], name: Hashable, keywords: Mapping[str, object]) -> None:
        self.hot: tuple[tuple[Check, Run, Callable[[Any], None]], ...] = ()
        self.kinds = kinds
        self.keywords = dict(keywords)  # These objects are kept, because calls find their site by identity.
        self.written: tuple[int, ...] = ()
        self._name = name
        self.read: Reader = self._reader()

    def _reader(self) -> Reader:
        return _generated(self.kinds, self.written)(self, self._name, Cold, _ordinary, _whole, _forward())

    def settle(self, prepared: Prepared, arguments: Sequence[Any], values: Sequence[Number]) -> None:
        """Put `prepared` first in `hot`, so that later calls like this one find it first."""
        tensors = [a for a, kind in zip(arguments, self.kinds, strict=True) if kind == TENSOR]
        if CONSTEXPR in self.kinds or any(int(v) & 15 for v in values[: len(tensors)]):
            return
        if prepared.written != self.written:
            self.hot, self.written = (), prepared.written
            self.read = self._reader()
        others = tuple(entry for entry in self.hot if entry[1] is not prepared.run)
        if prepared.renewals and (prepared.check is _never or len(others) < len(self.hot)):
            prepared.renewals -= 1
            prepared.check = check_of(tensors)
        if prepared.check is not _never:
            count = _counter([tensors[i] for i in self.written])
            self.hot = ((prepared.check, prepared.run, count), *others[: _HOT - 1])


def _whole(tensors: Sequence[Any]) -> bool:
    """Return True if every tensor that has elements has an address. An empty tensor has none."""
    return all(t.data_ptr() or not t.numel() for t in tensors)


def check_of(tensors: Sequence[Any]) -> Check:
    """Return a check for tensors like these, made of PyTorch's guards.

    One call compares types, layouts, dtypes, devices, sizes and strides. The check refuses a call that passes one
    tensor twice. The guards do not compare whether gradients are recorded: where a tensor may need one, the check
    refuses calls that record. If this PyTorch has no such guards, the check refuses everything.
    """
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        check: Check = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if not check(*tensors):
            return _never
    except UNREADABLE:
        return _never
    return _unrecorded(check) if any(t.requires_grad for t in tensors) else check


def _unrecorded(check: Check) -> Check:
    recorded = sys.modules["torch"].is_grad_enabled
    return lambda *tensors: not recorded() and check(*tensors)


@lru_cache(maxsize=256)
def _generated(kinds: tuple[str, ...], written: tuple[int, ...]) -> Callable[..., Reader]:
    """Return `make(site, name, Cold, _ordinary, _whole, _forward())`, which returns the reader of such arguments.

    `written` are the positions, among the tensors, of those that are written.
    """
    places = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in (TENSOR, SCALAR, CONSTEXPR)}
    tensors, scalars, constants = places[TENSOR], places[SCALAR], places[CONSTEXPR]
    addresses = [f"p{i} = a{i}.data_ptr()" for i in tensors]
    there = " and ".join(f"p{i}" for i in tensors)
    aligned = f"not ({' | '.join(f'p{i}' for i in tensors)}) & 15"
    values = f"({''.join(f'p{i}, ' for i in tensors)}{''.join(f'a{i}, ' for i in scalars)})"
    hot = [
        "        for check, run, count in site.hot if forward._current_level < 0 else ():",
        f"            if check({', '.join(f'a{i}' for i in tensors)}):",
        *(f"                {line}" for line in addresses),
        f"                if ({there} or whole(({''.join(f'a{i}, ' for i in tensors)}))) and {aligned}:",
        *([f"                    count(({''.join(f'a{tensors[i]}, ' for i in written)}))"] if written else []),
        f"                    return run({values})",
    ]
    lines = [
        "def make(site, name, Cold, ordinary, whole, forward):",
        f"    def read({', '.join(f'a{i}' for i in range(len(kinds)))}):",
        *(hot if tensors and not constants else ()),
        *(f"        ordinary(a{i})" for i in tensors),
        *(f"        {line}" for line in addresses),
        f"        key = (name, {''.join(_TENSOR_KEY.format(i=i) for i in tensors)}"
        f"{''.join(f'repr(a{i}), ' for i in constants)})",
        f"        return Cold(key, {values})",
        "    return read",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    make: Callable[..., Reader] = scope["make"]
    return make
