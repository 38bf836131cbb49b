"""An interpreter of gfx942 machine code: kernels run from their code objects, at their real tile sizes, on the host.

It is a second opinion on everything after the proofs: the emitter, the device header, and the compiler. Its input is a
code object as the compiler writes it, disassembled by LLVM. Documents: AMD Instinct MI300 ISA Reference Guide ("CDNA3
ISA"); LLVM's "User Guide for AMDGPU Backend" for the state at a kernel's start.

What it adds to arithmetic are the rules of order, each checked at every access, whatever the schedule:
- A register that a load shall fill is neither read nor written before the load is waited for (`s_waitcnt`).
- Bytes of LDS that one wave writes are touched by another only after the writer has waited and all have met at a
  barrier. Bytes that a load from memory shall fill are touched by nobody before its wait.
- Lanes touch only the bytes of their tensors, and store only to those that the launch lets them write.

What it does not model: time; caches; waits for matrix results (`s_nop`, which LLVM inserts); races between blocks;
the flushing of subnormal numbers by ordinary arithmetic. Sums of matrix products are rounded once.
"""
