"""Simpler forms of a kernel whose proofs carry over to the kernel itself."""
