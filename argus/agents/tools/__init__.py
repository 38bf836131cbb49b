"""Tools for other agents: what the command line does, as functions of texts, and a server."""
