"""Records: rooms, members, messages, manual status. Durable, numbered without gaps. One port per capability; `port` has all of them."""
