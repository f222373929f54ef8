"""Errors that the client raises on purpose.

GreendotError
├── ClientError
│   ├── Disconnected         socket lost before the reply; the client reconnects by itself
│   ├── ConnectionRefused    server forbids a return (close codes 4500–4999); the client has stopped
│   ├── Unreachable          first connection not made in time
│   ├── Closed               client closed by its own program
│   ├── QueueFull            too many commands wait for a connection
│   ├── Overrun              consumer of events() too far behind to get every record
│   ├── BadReply             reply that cannot be decoded
│   └── BadWebhook           request that Greendot did not send (client.webhooks)
└── Refused
    └── CommandRefused       command that the server understood and did not grant
"""

from __future__ import annotations

from greendot.errors import GreendotError, Refused


class ClientError(GreendotError):
    """Root of the errors between a client and its server."""


class Disconnected(ClientError):
    """Missing connection, or one lost before the reply: the command may or may not have been carried out."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"not connected (close code {code}{': ' if reason else ''}{reason})")
        self.code = code
        self.reason = reason


class ConnectionRefused(ClientError):
    """Close by the server with a code that forbids a return. `code` is one of protocol.codes.Close."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the server refused the connection (close code {code}{': ' if reason else ''}{reason})")
        self.code = code
        self.reason = reason


class Unreachable(ClientError):
    """Failure of every attempt at the first connection within the time limit. The cause is the last error."""


class Closed(ClientError):
    """Use of a client after it was closed."""

    def __init__(self) -> None:
        super().__init__("this client is closed")


class QueueFull(ClientError):
    """Command that is neither sent nor queued: without a connection, the queue is limited (`SendQueue`)."""


class Overrun(ClientError):
    """End of an iterator whose buffer could not hold every record. `history` still has the records."""


class BadReply(ClientError):
    """Reply that this version of the client cannot decode."""


class CommandRefused(Refused):
    """Error frame. `retry`: the same command may succeed later without change."""

    def __init__(self, code: str, message: str, *, retry: bool = False, retry_in_ms: int | None = None) -> None:
        super().__init__(code, message, retry_in_ms=retry_in_ms)
        self.retry = retry

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def closing_error(code: int, reason: str) -> Disconnected | ConnectionRefused:
    """Return the error for callers that wait on a socket closed with `code`."""
    # 1006 (lost), 1001, 1011 and similar codes do not concern the client: only 4500–4999 forbid a return.
    return ConnectionRefused(code, reason) if 4500 <= code < 5000 else Disconnected(code, reason)
