"""Tools for other agents: functions of texts that do what the command line does, and a server."""
