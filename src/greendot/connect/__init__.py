"""Connections from hello to drain: admission, handshake, command dispatch, recovery after a loss, disconnect."""
