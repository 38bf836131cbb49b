"""Launches: arguments are bound and checked, and a kernel's grid and parameters are prepared."""
