"""Life of a client connection: hello with its admission, command dispatch, recovery after a loss, disconnect, drain."""
