"""Chat models: one interface, budgets, retries and transcripts. A model proposes; nothing that it says is a verdict."""
