"""The flat emitter: explicit IR to C++ calls of the device library. It prints, and decides nothing.

What it does have to work out is arithmetic: which register holds an element (`registers`), and how an address
splits into what is uniform, what is the thread's and what is the unrolled loops' (`address`).
"""

from argus.backend.emit.kernel import emit

__all__ = ["emit"]
