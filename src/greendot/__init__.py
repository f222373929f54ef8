"""Greendot: who is online, who is typing, who is in the room, and what nobody may miss."""

__version__ = "0.1.0"
