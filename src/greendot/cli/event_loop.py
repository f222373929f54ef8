"""Event loop of a server, without log lines about name lookups that were given up."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvloop


def new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(handle)
    return loop


def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task has received, except the failure of a name lookup.

    uvloop does not cancel the lookup of a connection attempt that reaches its time limit. When the resolver fails
    later, the caller has already reported the outage, and the failure would be logged as an error of the server.
    """
    if not ("future" in context and isinstance(context.get("exception"), socket.gaierror)):
        loop.default_exception_handler(context)
