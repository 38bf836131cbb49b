"""Proofs of programs, with one file for each property."""
