"""Connections from hello to drain: hello with its admission, command dispatch, recovery after a loss, disconnect."""
