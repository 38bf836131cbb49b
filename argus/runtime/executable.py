"""Kernels that are ready to launch: proved and built once, then stored in the disk cache.

A kernel from the cache is used without loading the compiler: no parser, no solver, no IR.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from argus.backend.artifact import SERIALISED, SPILLED, Artifact
from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import FORMAT, compiler, constant, file_identity
from argus.backend.launch.signature import Signature, TensorParam, signature, signature_from_json, signature_to_json
from argus.diagnostic import LaunchError
from argus.environment import cache_directory
from argus.frontend.decorator import FuncSource
from argus.frontend.options import Options
from argus.garbage import seldom
from argus.ir.target import TARGETS
from argus.source import SourceFile

Json = Any

TENSOR, OPTIONAL, SCALAR, CONSTEXPR = "tensor", "optional", "scalar", "constexpr"


class SpeedWarning(UserWarning):
    """A kernel was built whose machine code is slower than its text suggests."""


class KernelText(Protocol):
    """The source text of a kernel: function `name` of `file`."""

    @property
    def name(self) -> str:
        """The function's name."""

    @property
    def file(self) -> SourceFile:
        """The file that contains the function."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as declared; `kind` is `TENSOR`, `OPTIONAL` (a tensor or None), `SCALAR` or `CONSTEXPR`."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Executable:
    """A kernel that was proved and built for `options`.

    `report` holds the verdict, the seconds that the proof took, its `timings` (property, engine, seconds), and its
    findings. Findings in `accepted` were unknown, and were tested by `runs` runs in the simulator. `resources` holds
    the compiler's figures, by the names of `argus.backend.artifact.Resources`.
    """

    signature: Signature
    target: str
    entry: str
    source: str
    binary: bytes
    resources: Mapping[str, int | None] | None
    assumptions: tuple[str, ...]
    report: Mapping[str, Json]


class Source(Protocol):
    """The interface through which a launcher gets a kernel. Every method may raise SourceError."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of declaration."""

    def interface(self, options: Options) -> Signature:
        """Return the signature before lowering, without alignment requirements."""

    def executable(self, options: Options) -> Executable:
        """Return the proved and built kernel. Also raises VerificationError and ToolchainError."""


@dataclass(frozen=True, slots=True)
class CachedSource:
    """Kernel `text`, compiled unless it is in `cache`, by default the user's cache directory."""

    text: KernelText
    cache: DiskCache | None = None

    def parameters(self) -> tuple[Parameter, ...]:
        """See `Source`."""

        def make() -> Entry:
            from argus.compile import declared

            return Entry([[name, kind] for name, kind in declared(self.text.file, self.text.name)])

        return tuple(Parameter(name, kind) for name, kind in self._entry("parameters", {}, make).data)

    def interface(self, options: Options) -> Signature:
        """See `Source`."""

        def make() -> Entry:
            from argus.compile import elaborate

            return Entry(signature_to_json(signature(elaborate(self.text.file, self.text.name, options))))

        entry = self._entry("interface", options_json(options), make)
        return unaligned(signature_from_json(entry.data, self.text.file))

    def executable(self, options: Options) -> Executable:
        """See `Source`."""

        def make() -> Entry:
            from argus.backend.standby import standby

            with standby(options.target) as compiler:
                from argus.compile import compile

                compiled = compile(self.text.file, self.text.name, options, compiler=compiler)
            _warn(compiled.artifact)
            return _entry(compiled)

        return _executable(self._entry("executable", _built_with(options), make), self.text.file)

    def cached(self, options: Options) -> Executable | None:
        """Return the kernel if it was proved and built earlier and is still in the cache, else None."""
        entry = self._cache().get(self._key("executable", _built_with(options)))
        return None if entry is None else _executable(entry, self.text.file)

    def keep(self, options: Options, compiled: Any) -> Executable:
        """Put a kernel that the caller proved and built, an `argus.compile.Compiled`, into the cache; return it."""
        entry = _entry(compiled)
        self._cache().put(self._key("executable", _built_with(options)), entry)
        return _executable(entry, self.text.file)

    def _cache(self) -> DiskCache:
        return DiskCache(cache_directory()) if self.cache is None else self.cache

    def _key(self, kind: str, parts: Mapping[str, Json]) -> str:
        what = {"kind": kind, "text": self.text.file.digest, "name": self.text.name}
        return cache_key({"format": FORMAT, "compiler": compiler(), **what, **parts})

    def _entry(self, kind: str, parts: Mapping[str, Json], make: Callable[[], Entry]) -> Entry:
        key, cache = self._key(kind, parts), self._cache()
        entry = cache.get(key)
        if entry is None:
            with seldom():
                entry = make()
            cache.put(key, entry)
        return entry


def unaligned(signature: Signature) -> Signature:
    """Return `signature` without alignment requirements."""
    params = (replace(p, alignment=1) if isinstance(p, TensorParam) else p for p in signature.params)
    return replace(signature, params=tuple(params))


# ---------------------------------------------------------------------------- keys


def is_constant(value: object) -> bool:
    """Return True if `value` may be the value of a constexpr parameter; such values are immutable."""
    try:
        _constant(value)
    except TypeError:
        return False
    return True


def _constant(value: object) -> Json:
    """Return the JSON of a constexpr value; like `argus.backend.fingerprint.constant`, but also for functions."""
    return ["func", value.name, value.digest] if isinstance(value, FuncSource) else constant(value)


def options_json(options: Options) -> dict[str, Json]:
    """Return the constants of a kernel as JSON values."""
    constants = {}
    for name, value in {**options.constexprs, "num_warps": options.num_warps}.items():
        try:
            constants[name] = _constant(value)
        except TypeError as error:
            raise LaunchError.of("constexpr-argument", f"`{name}`: {error}", "pass a constant") from None
    return {
        "target": options.target,
        "constants": constants,
        "alignment": {n: a for n, a in options.alignment.items() if a != options.default_alignment},
        "default_alignment": options.default_alignment,
    }


def _built_with(options: Options) -> dict[str, Json]:
    """Return everything that a build depends on besides the text."""
    return {**options_json(options), "toolchain": _toolchain(options.target)}


def _toolchain(target: str) -> Json:
    """Return the identity of the compiler that builds for `target`, or None if there is none."""
    match TARGETS[target].vendor:
        case "cpu":
            from argus.backend.cpu.toolchain import find_compiler
        case "nvidia":
            from argus.backend.cuda.toolchain import find_compiler
        case _:
            from argus.backend.hip.toolchain import find_compiler
    path = find_compiler()
    return None if path is None else file_identity(path)


# ---------------------------------------------------------------------------- entries


_MANY_SPILLED_BYTES = 64


def _warn(artifact: Artifact) -> None:
    """Warn if products wait for one another, or many registers are in memory. Other remarks are in the report."""
    resources = artifact.resources
    spilled = resources is not None and (resources.spill_bytes or 0) >= _MANY_SPILLED_BYTES
    for remark in artifact.remarks:
        if remark.code == SERIALISED or (remark.code == SPILLED and spilled):
            warnings.warn(f"{remark.message}. {remark.help}", SpeedWarning, stacklevel=2)


def _entry(compiled: Any) -> Entry:
    """Return the cache entry of an `argus.compile.Compiled`."""
    from argus.render import diagnostic_json

    artifact, report = compiled.artifact, compiled.report
    r = artifact.resources
    data = {
        "signature": signature_to_json(signature(artifact.kernel)),
        "target": artifact.target,
        "entry": artifact.entry,
        "resources": None
        if r is None
        else {
            "registers": r.registers,
            "shared_bytes": r.shared_bytes,
            "spill_bytes": r.spill_bytes,
            "occupancy_blocks": r.occupancy_blocks,
        },
        "assumptions": list(artifact.assumptions),
        "report": {
            "verdict": report.verdict.value,
            "seconds": report.seconds,
            "timings": [[t.property, t.engine, t.seconds] for t in report.timings],
            "assumptions": list(report.assumptions),
            "accepted": list(report.accepted),
            "runs": report.runs,
            "diagnostics": [diagnostic_json(d) for d in (*report.diagnostics, *artifact.remarks)],
        },
    }
    return Entry(data, {"source": artifact.source.encode(), "binary": artifact.binary})


def _executable(entry: Entry, file: SourceFile) -> Executable:
    data = entry.data
    return Executable(
        signature_from_json(data["signature"], file),
        data["target"],
        data["entry"],
        entry.blobs["source"].decode(),
        entry.blobs["binary"],
        data["resources"],
        tuple(data["assumptions"]),
        data["report"],
    )
