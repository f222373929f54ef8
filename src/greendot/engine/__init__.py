"""Signals: presence, typing and the bus between nodes. At most once, never durable. See `port` and `messages`."""
