"""What the library computes on a GPU that nobody has tried: `python -m tests.gpu.report [FILE]`.

Every call of `tests.gpu.shipped` is made, also after one that fails, and its outcome is printed: "right", "refused"
with the reason, or the error. The report names the machine. It is written to FILE as JSON after every call, so that it
is there if the process ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from argus.written import write_whole
from benchmarks.machine import machine
from tests.gpu.shipped import calls, outcome


def made(device: str, path: Path | None, wanted: tuple[str, ...] = ()) -> dict[str, Any]:
    """Make the calls whose names begin with one of `wanted`, or all; return the report."""
    report: dict[str, Any] = {"machine": dict(machine()), "device": _described(device), "calls": {}}
    for call in calls():
        if wanted and not call[0].startswith(wanted):
            continue
        begin = time.monotonic()
        found = outcome(call, device)
        report["calls"][call[0]] = {"outcome": found, "seconds": round(time.monotonic() - begin, 2)}
        print(f"{call[0]}: {found}", flush=True)
        if path is not None:
            write_whole(path, json.dumps(report, indent=1).encode())
    return report


def _described(device: str) -> dict[str, str]:
    if device == "cpu":
        return {"name": "cpu"}
    properties = torch.cuda.get_device_properties(0)
    architecture = getattr(properties, "gcnArchName", f"{properties.major}.{properties.minor}")
    return {"name": properties.name, "architecture": architecture, "hip": str(torch.version.hip)}


def main() -> None:
    """Report on the first GPU; the exit status is 1 if a call is neither right nor refused."""
    report = made("cuda", Path(sys.argv[1]) if sys.argv[1:] else None)
    kinds = Counter(one["outcome"].partition(":")[0] for one in report["calls"].values())
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    sys.exit(bool(set(kinds) - {"right", "refused"}))


if __name__ == "__main__":
    main()
