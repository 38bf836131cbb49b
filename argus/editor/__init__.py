"""The editor's view of kernels: findings with places, edits that remedy them, and hovers. `server` speaks LSP."""
