"""Every error Greendot raises on purpose.

    GreendotError
    ├── ConfigError          a setting is wrong; the message says what to do (start-up only)
    ├── Refused              a client's request cannot be granted; carries a wire error code
    ├── TokenError           a token is missing, malformed, forged or expired
    │   └── TokenRevoked     it would be valid, and was taken back
    ├── KeysUnavailable      the key of a token cannot be fetched now; try again later
    ├── Unreadable           a client reads no version of an event it cannot do without
    ├── EngineUnavailable    signals cannot be shared now; try again later
    ├── StoreUnavailable     records cannot be read or written now; try again later
    ├── StaleMembers         the members of a room have changed since the caller was admitted; admit again
    ├── Unstorable           a value the store cannot hold; tried again, it fails again
    ├── BadWebhook           a request to an app is not what Greendot sent
    ├── ClientError          what a client's program meets (client.errors)
    └── ServerError          what an app's backend meets (server.errors)

Drivers' own errors (redis, asyncpg, sqlite3) are translated into these at the port and never cross it.
"""

from __future__ import annotations


class GreendotError(Exception):
    """The root of the tree above."""


class ConfigError(GreendotError):
    """Settings, or relations between them, are wrong. Shown to a person, without a traceback: all that was found."""

    def __init__(self, *mistakes: str) -> None:
        several = len(mistakes) > 1
        super().__init__("\n".join([f"{len(mistakes)} settings are wrong:", *mistakes]) if several else mistakes[0])
        self.mistakes = mistakes


class Refused(GreendotError):
    """A request that is understood and not granted. `code` is the wire's error code (protocol.codes.Err)."""

    def __init__(self, code: str, message: str, *, retry_in_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_in_ms = retry_in_ms


class TokenError(GreendotError):
    """The token is not one we accept. `expired` tells a stale token from a wrong one."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


class TokenRevoked(TokenError):
    """The token, or the session it is to be used for, was revoked."""


class KeysUnavailable(GreendotError):
    """Whether a token is good cannot be known now."""

    def __init__(self, *, retry_in_ms: int) -> None:
        super().__init__("the token's key cannot be looked up now: try again in a moment")
        self.retry_in_ms = retry_in_ms


class Unreadable(GreendotError):
    """There is no version of an event that both sides know, and no going on without it. Said to the client's author."""


class EngineUnavailable(GreendotError):
    """The engine did not answer; nothing is known about whether the verb was carried out."""


class StoreUnavailable(GreendotError):
    """The store did not answer; a write may or may not have been committed."""


class StaleMembers(GreendotError):
    """A message was refused because the room's members are not those its author was admitted under."""


class Unstorable(GreendotError):
    """The store cannot hold a value of this call, or look for it; nothing was written."""


class BadWebhook(GreendotError):
    """A request that must not be believed. Answer it with 400."""
