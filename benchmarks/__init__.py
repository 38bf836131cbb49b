"""Benchmarks: one command a table, printed with the machine it came from."""
