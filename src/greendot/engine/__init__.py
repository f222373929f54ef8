"""Signals: presence, typing, the bus between nodes. At most once, never durable. The port is in `port`, bus messages in `messages`."""
