"""Greendot: who is online, who is typing, who is in the room, and what nobody may miss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greendot.server import Server as Server

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Found when it is asked for: whoever only wants the version, or another part, loads no HTTP client.
    if name == "Server":
        from greendot.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
