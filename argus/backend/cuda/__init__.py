"""NVIDIA GPUs: the device header and the compilers that turn emitted text into a cubin, with no driver."""
