"""Emit, compile and launch: the flat emitter, one device header per target, the toolchains."""
