"""Write packages: machine code, a manifest, a C header, generated C, and the loader."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from argus.backend.launch.signature import Signature, signature_to_json
from argus.diagnostic import ArgusError, Diagnostic
from argus.ir.target import TARGETS
from argus.packages.expressions import NotInC
from argus.packages.functions import launch, public_kernel
from argus.packages.programs import Places, events_of, has_collectives, public_program
from argus.programs import JitProgram
from argus.programs.ir import MAIN
from argus.programs.ready import Ready
from argus.runtime.executable import Executable
from argus.runtime.jit_kernel import JitKernel

SCHEMA = 1
"""The version of the manifest's schema (docs/schema/package-1.json)."""

Item = JitKernel | JitProgram
Entry = Item | tuple[Item, Mapping[str, object]]
"""A kernel or program, with its constexpr parameters if there are any."""

_RUNTIME = ("argus.h", "argus_call.h", "argus.c")
_SUFFIXES = {"cpu": ".so", "nvidia": ".cubin"}


def package(
    folder: str | Path,
    entries: Mapping[str, Entry],
    *,
    target: str,
    name: str | None = None,
    alignment: Mapping[str, Mapping[str, int]] | None = None,
) -> Path:
    """Write a package of proved kernels and programs for C, and return its manifest.

    `entries` maps the names of C functions to kernels and programs, each alone or with its constants:
    `{"twice": twice, "rows": (rows, {"BLOCK": 64})}`. `name` (by default the folder's) is the prefix of all functions.
    `alignment` gives tensors, by entry and name, an alignment in bytes other than 16.

    Raises VerificationError if an entry is not proved, ToolchainError if there is no compiler, and ArgusError
    "bad-package".
    """
    path = Path(folder)
    prefix = path.resolve().name if name is None else name
    if target not in TARGETS or TARGETS[target].vendor not in _SUFFIXES:
        raise _bad(
            f"a package is for the CPU or an NVIDIA GPU, not for {target!r}", "choose `cpu`, `sm_80` or `sm_90a`"
        )
    writer = _Writer(prefix, target)
    for key in (prefix, *entries):
        if not re.fullmatch(r"[A-Za-z]\w*", key, re.ASCII):
            raise _bad(f"{key!r} cannot be a name in C", "use letters, digits and underscores")
    for key, entry in entries.items():
        item, constants = entry if isinstance(entry, tuple) else (entry, {})
        aligned = (alignment or {}).get(key, {})
        try:
            options: dict[str, Any] = {"alignment": aligned, **constants}
            writer.add(key, item.build(target, **options))
        except NotInC as error:
            what = f"`{key}` has a condition or a grid that cannot be computed in C: {error}"
            raise _bad(what, "write it with integer arithmetic and comparisons") from None
    return writer.write(path)


def _bad(message: str, help: str) -> ArgusError:
    return ArgusError(Diagnostic("bad-package", message, property="input", help=help))


@dataclass
class _Writer:
    """The parts of a package, in the order in which they were added."""

    prefix: str
    target: str
    kernels: list[Executable] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    streams: int = 0
    events: int = 0

    def add(self, key: str, built: Executable | Ready) -> None:
        if isinstance(built, Ready):
            self.program(key, built)
        else:
            self.kernel(key, built)

    def kernel(self, key: str, built: Executable) -> None:
        if built.signature.grid is None:
            raise _bad(
                f"the kernel `{key}` declares no grid", "declare it with `al.grid(...)`, or launch it in a program"
            )
        number = self.number(built)
        signature = replace(built.signature, name=key)
        declaration, definition = public_kernel(self.prefix, signature, number)
        self.declarations.append(declaration)
        self.definitions.append(definition)
        self.functions.append(_function(key, "kernel", signature, [number]))

    def program(self, key: str, built: Ready) -> None:
        program = replace(built.program, name=key)
        numbers = [self.number(k) for k in built.kernels]
        side = [s for s in program.streams if s != MAIN]
        events = events_of(program)
        places = Places(
            numbers,
            {s: self.streams + i for i, s in enumerate(side)},
            {e: self.events + i for i, e in enumerate(events)},
        )
        self.streams += len(side)
        self.events += len(events)
        signature = replace(built.signature, name=key)
        pairs = zip(program.uses, built.kernels, strict=True)
        missing = next((use.name for use, k in pairs if k.signature.grid is None), None)
        if missing is not None:
            raise _bad(f"the kernel `{missing}` declares no grid", "declare it with `al.grid(...)`")
        signatures = [k.signature for k in built.kernels]
        declaration, definition = public_program(self.prefix, program, signature, signatures, places)
        self.declarations.append(declaration)
        self.definitions.append(definition)
        entry = _function(key, "program", signature, numbers)
        self.functions.append({**entry, "collectives": has_collectives(program), "streams": len(side)})

    def number(self, built: Executable) -> int:
        """Return the number of a kernel. Equal kernels share a number."""
        for number, known in enumerate(self.kernels):
            if known.binary == built.binary and known.signature == built.signature:
                return number
        self.kernels.append(built)
        self.definitions.append(launch(built.signature, len(self.kernels) - 1))
        return len(self.kernels) - 1

    # ------------------------------------------------------------------ files

    def file(self, number: int) -> str:
        return f"{self.kernels[number].signature.name}_{number}{_SUFFIXES[TARGETS[self.target].vendor]}"

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        runtime = Path(__file__).parent
        for name in _RUNTIME:
            (folder / name).write_bytes((runtime / name).read_bytes())
        for number, built in enumerate(self.kernels):
            (folder / self.file(number)).write_bytes(built.binary)
        (folder / f"{self.prefix}.h").write_text(self.header(), encoding="utf-8")
        (folder / f"{self.prefix}.c").write_text(self.source(), encoding="utf-8")
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps(self.manifest(), indent=2) + "\n", encoding="utf-8")
        return manifest

    def header(self) -> str:
        guard = f"{self.prefix.upper()}_PACKAGE_H"
        lines = [
            f"// Package `{self.prefix}` for {self.target}: kernels and programs that were proved.",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            '#include "argus.h"',
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "// `folder` holds the package's files; `device` is the number of the GPU.",
            f"{self.opening()};",
            "",
            *self.declarations,
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
            "",
        ]
        return "\n".join(lines)

    def opening(self) -> str:
        """Return the first lines of the function that opens the package."""
        given = "const char *folder, int device, argus_package **package, char *message, size_t size"
        return f"int {self.prefix}_open({given})"

    def source(self) -> str:
        rows = [
            f'    {{"{self.file(i)}", "{k.entry}", {k.signature.num_threads}, {k.signature.shared_bytes}, '
            f"{k.signature.cluster}, {int(k.signature.persistent)}}},"
            for i, k in enumerate(self.kernels)
        ]
        cuda = int(TARGETS[self.target].vendor == "nvidia")
        counts = f"{len(self.kernels)}, {self.streams}, {self.events}"
        table = f"static const argus_table table = {{{cuda}, binaries, {counts}}};"
        opened = f"{self.opening()}\n{{\n    return argus_open(folder, &table, device, package, message, size);\n}}"
        return "\n\n".join([
            f'// Generated by Argus.\n#include "{self.prefix}.h"\n\n#include "argus_call.h"\n\n#include <math.h>\n'
            "#include <stdlib.h>",
            "\n".join(["static const argus_binary binaries[] = {", *rows, "};"]),
            table, *self.definitions, opened,
        ]) + "\n"  # fmt: skip

    def manifest(self) -> dict[str, Any]:
        binaries = [
            {
                "file": self.file(i),
                "entry": k.entry,
                "threads": k.signature.num_threads,
                "shared_bytes": k.signature.shared_bytes,
                "cluster": k.signature.cluster,
                "sha256": sha256(k.binary).hexdigest(),
                "signature": signature_to_json(k.signature),
                "verdict": k.report["verdict"],
                "accepted": list(k.report["accepted"]),
                "assumptions": list(k.assumptions),
            }
            for i, k in enumerate(self.kernels)
        ]
        return {"schema": SCHEMA, "name": self.prefix, "target": self.target, "functions": self.functions,
                "binaries": binaries}  # fmt: skip


def _function(key: str, kind: str, signature: Signature, kernels: list[int]) -> dict[str, Any]:
    return {"name": key, "kind": kind, "signature": signature_to_json(signature), "kernels": kernels}
