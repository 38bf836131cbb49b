"""A worker that prints what looks like answers, dies, hangs, or answers with something else."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from argus.agents.optimize.service import serve


def handle(request: dict[str, Any]) -> Any:
    if "die" in request:
        os._exit(3)
    if "hang" in request:
        time.sleep(600)
    if "folder" in request:
        return {"made": tempfile.mkdtemp()}
    if "list" in request:
        return ["proved"]
    print(request["say"], flush=True)
    os.system('echo \'{"refused": ""}\'')
    return {"honest": True}


def main() -> None:
    serve(handle)
