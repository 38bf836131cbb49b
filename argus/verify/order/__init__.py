"""Happens-before and progress: barriers, asynchronous work and the protocols of mbarriers."""
