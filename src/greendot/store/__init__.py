"""Records: rooms, members, messages, manual status. Durable, numbered without gaps. The port is in `base`."""
