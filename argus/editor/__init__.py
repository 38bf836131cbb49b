"""What an editor shows of kernels: findings with places, edits that remedy them, and hovers. `server` speaks LSP."""
