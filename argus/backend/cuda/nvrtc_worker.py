"""Compile one text with NVRTC, as a separate program: `nvrtc_worker.py LIBRARY NAME OUTPUT OPTION...`.

The program first starts the compiler, then reads the text from standard input to its end. NAME names the text in
messages.

NVRTC works inside the calling process. In the user's process, a crash or an endless compilation would be the user's
problem; this program can be killed instead. Status 0: OUTPUT is written (unless the text is empty), and the log is on
stderr. Status 1: the log gives the reason.

The program imports nothing from Argus, so that it starts at once.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


class Nvrtc:
    """The few functions of NVRTC's C interface that are needed (NVRTC 12 and 13 agree on them)."""

    def __init__(self, library: Path) -> None:
        # The wheel has no RUNPATH: NVRTC finds its builtins only if they are loaded already.
        for builtins in sorted(library.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._program = ctypes.c_void_p()

    def _status(self, function: str, *args: object) -> int:
        return int(getattr(self._library, function)(*args))

    def _call(self, function: str, *args: object) -> None:
        status = self._status(function, *args)
        if status:
            raise RuntimeError(f"{function}: {self._library.nvrtcGetErrorString(status).decode()}")

    def create(self, text: bytes, name: bytes) -> None:
        """Start a program from its source text."""
        program = ctypes.byref(self._program)
        self._call("nvrtcCreateProgram", program, text, name, ctypes.c_int(0), None, None)

    def compile(self, options: list[bytes]) -> bool:
        """Compile the program. Return False if it does not compile; the log gives the reasons."""
        array = (ctypes.c_char_p * len(options))(*options)
        return self._status("nvrtcCompileProgram", self._program, ctypes.c_int(len(options)), array) == 0

    def _bytes(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", self._program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", self._program, buffer)
        return buffer.raw

    def log(self) -> str:
        """Return the compiler's log."""
        return self._bytes("ProgramLog").rstrip(b"\0").decode(errors="replace")

    def cubin(self) -> bytes:
        """Return the machine code; the options must have named a real architecture (sm_*)."""
        return self._bytes("CUBIN")


_FIRST = b'extern "C" __global__ void first() {}'
"""The first program of a compiler takes a fifth of a second longer than later ones."""


def main(arguments: list[str]) -> int:
    library, name, output, *options = arguments
    encoded = [option.encode() for option in options]
    nvrtc = Nvrtc(Path(library))
    nvrtc.create(_FIRST, b"first.cu")
    nvrtc.compile(encoded)
    text = sys.stdin.buffer.read()
    if not text:  # There is nothing to compile.
        return 0
    nvrtc.create(text, name.encode())
    compiled = nvrtc.compile(encoded)
    print(nvrtc.log(), file=sys.stderr)
    if compiled:
        Path(output).write_bytes(nvrtc.cubin())
    return 0 if compiled else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
