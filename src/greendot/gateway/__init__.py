"""The shell around sockets: connections, sessions, fan-out. Decisions are in `core`."""
