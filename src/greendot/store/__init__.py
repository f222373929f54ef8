"""Records: rooms, messages, inboxes and more. Durable, numbered without gaps. A port per capability; `port` has all."""
