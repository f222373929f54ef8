"""Every error the client raises on purpose.

GreendotError
├── ClientError
│   ├── Disconnected         the socket was lost before the answer; the client is coming back by itself
│   ├── ConnectionRefused    the server said not to come back (close codes 4500–4999); the client has stopped
│   ├── Unreachable          the first connection was not made in time
│   ├── Closed               the client was closed by its own program
│   ├── QueueFull            too much waits for a connection already
│   ├── Overrun              a consumer of events() fell too far behind to be given every record
│   ├── BadReply             the server's answer could not be read
│   └── BadWebhook           a request is not what Greendot sent (client.webhooks)
└── Refused
    └── CommandRefused       the server understood a command and did not grant it
"""

from __future__ import annotations

from greendot.errors import GreendotError, Refused


class ClientError(GreendotError):
    """The root of what can go wrong between a client and its server."""


class Disconnected(ClientError):
    """No socket, or it was lost before the answer: the command may or may not have been carried out."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"not connected (close code {code}{': ' if reason else ''}{reason})")
        self.code = code
        self.reason = reason


class ConnectionRefused(ClientError):
    """The server closed with a code that forbids a return. `code` is one of protocol.codes.Close."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the server refused the connection (close code {code}{': ' if reason else ''}{reason})")
        self.code = code
        self.reason = reason


class Unreachable(ClientError):
    """No attempt at the first connection succeeded in the time given; the last one's error is the cause."""


class Closed(ClientError):
    """The client was used after it was closed."""

    def __init__(self) -> None:
        super().__init__("this client is closed")


class QueueFull(ClientError):
    """Not sent, and not kept: while there is no connection only so much is (`SendQueue`)."""


class Overrun(ClientError):
    """The iterator ends here because its buffer could not hold every record. `history` still has them."""


class BadReply(ClientError):
    """An answer came that this version of the client cannot read."""


class CommandRefused(Refused):
    """An error frame. `retry` says whether the same command may succeed later, without change."""

    def __init__(self, code: str, message: str, *, retry: bool = False, retry_in_ms: int | None = None) -> None:
        super().__init__(code, message, retry_in_ms=retry_in_ms)
        self.retry = retry

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def closing_error(code: int, reason: str) -> Disconnected | ConnectionRefused:
    """What a socket closed with `code` means to those who waited on it."""
    # 1006 (lost), 1001, 1011 and the like say nothing about the client: only 4500–4999 forbid a return.
    return ConnectionRefused(code, reason) if 4500 <= code < 5000 else Disconnected(code, reason)
