"""A program as a PyTorch operator, which `torch.compile` and `torch.export` trace without looking inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from argus.backend.launch.signature import Signature, TensorParam
from argus.diagnostic import LaunchError
from argus.ir.types import DTYPES

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def register(
    name: str, signature: Signature, run: Callable[..., None], constants: Mapping[str, object]
) -> tuple[Any, Any]:
    """Register `run` as operator `name` ("namespace::name"), and return it with the library that keeps it registered.

    The operator takes the program's tensors and scalars in order, returns nothing, and is declared to mutate the
    tensors that the program writes. Raises LaunchError "operator-name".
    """
    import torch
    from torch.library import Library, register_fake

    namespace, separator, short = name.partition("::")
    if not (separator and namespace.isidentifier() and short.isidentifier()):
        raise LaunchError.of("operator-name", f"{name!r} does not name an operator", 'write "namespace::name"')
    names = [p.name for p in signature.params]

    def called(*given: Any) -> None:
        if constants:
            run(**dict(zip(names, given, strict=True)), **constants)
        else:
            run(*given)

    library: Any = Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(short + schema(signature), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(short, called, "CompositeExplicitAutograd")
    register_fake(name, lambda *_given: None, lib=library)
    return getattr(getattr(torch.ops, namespace), short).default, library


def schema(signature: Signature) -> str:
    """Return the parameters of a program in the schema language of PyTorch."""
    given, written = [], 0
    for p in signature.params:
        if not isinstance(p, TensorParam):
            given.append(f"{'float' if DTYPES[p.dtype].is_float else 'int'} {p.name}")
        elif p.written:
            given.append(f"Tensor({_LETTERS[written]}!) {p.name}")
            written += 1
        else:
            given.append(f"Tensor {p.name}")
    return f"({', '.join(given)}) -> ()"
