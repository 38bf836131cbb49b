"""The emitter: print explicit IR as C++ calls of the device library. It makes no decisions.

It only does arithmetic: it finds the register that holds an element (`registers`), and splits an address into a uniform
part, the thread's part and the unrolled loops' part (`address`).
"""

from argus.backend.emit.kernel import emit

__all__ = ["emit"]
