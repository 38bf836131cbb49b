"""Proofs of programs: one file a property."""
