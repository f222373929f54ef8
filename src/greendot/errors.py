"""Errors that Greendot raises on purpose.

    GreendotError
    ├── ConfigError          a setting is wrong; the message names the remedy (start-up only)
    ├── Refused              a client's request cannot be granted; carries a wire error code
    ├── TokenError           a token is missing, malformed, forged or expired
    │   └── TokenRevoked     an otherwise valid token was revoked
    │       └── UserBanned   the user of the token is banned from the tenant
    ├── KeysUnavailable      the key of a token cannot be fetched now; try again later
    ├── Unreadable           a client supports no version of an essential event
    ├── EngineUnavailable    signals cannot be shared now; try again later
    ├── StoreUnavailable     records cannot be read or written now; try again later
    ├── StaleMembers         the members of a room have changed since the caller was admitted; admit again
    ├── RoomArchived         a room takes no messages, because the app has archived it
    ├── Restricted           the author of a message is muted or banned
    ├── SlowMode             the author of a message has to wait, because the room is in slow mode
    ├── RoomBeingDeleted     a room of this name was deleted, and its rows are still being removed; try again later
    ├── NoSuchMessage        a message that does not exist, is a change of another one, or was deleted
    ├── Unstorable           a value the store cannot hold; a retry fails again
    ├── BadWebhook           a webhook request was not sent by Greendot
    ├── ClientError          errors of the Python client (client.errors)
    └── ServerError          errors of the backend SDK (sdk.errors)

Ports translate the errors of their drivers (redis, asyncpg, sqlite3) into these errors. Driver errors never cross a
port.
"""

from __future__ import annotations

from math import ceil


class GreendotError(Exception):
    """Root of the tree above."""


class ConfigError(GreendotError):
    """Wrong settings, or wrong combinations of settings.

    The message lists all mistakes and is shown without a traceback.
    """

    def __init__(self, *mistakes: str) -> None:
        several = len(mistakes) > 1
        super().__init__("\n".join([f"{len(mistakes)} settings are wrong:", *mistakes]) if several else mistakes[0])
        self.mistakes = mistakes


class Refused(GreendotError):
    """Request that is understood and not granted. `code` is the wire's error code (protocol.codes.Err)."""

    def __init__(self, code: str, message: str, *, retry_in_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_in_ms = retry_in_ms


class TokenError(GreendotError):
    """Token that the server does not accept. `expired` distinguishes a stale token from a wrong one."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


class TokenRevoked(TokenError):
    """Revoked token, or token for a revoked session."""


class UserBanned(TokenRevoked):
    """Token of a user who is banned from the tenant. `retry_in_ms` is the time until the end; None: no end."""

    def __init__(self, retry_in_ms: int | None) -> None:
        when = "" if retry_in_ms is None else f" for {ceil(retry_in_ms / 1000)} s"
        super().__init__(f"the app has banned this user{when}; the app can end this")
        self.retry_in_ms = retry_in_ms


class KeysUnavailable(GreendotError):
    """Signing key that cannot be fetched now, so that a token cannot be verified."""

    def __init__(self, *, retry_in_ms: int) -> None:
        super().__init__("the key of the token cannot be fetched now; try again in a moment")
        self.retry_in_ms = retry_in_ms


class Unreadable(GreendotError):
    """Essential event without a version that both server and client support. The message is for the client's author."""


class EngineUnavailable(GreendotError):
    """Engine that did not answer. The verb may or may not have been carried out."""


class StoreUnavailable(GreendotError):
    """Store that did not answer. A write may or may not have been committed."""


class StaleMembers(GreendotError):
    """Message refused because the room's members have changed since its author was admitted."""


class RoomArchived(GreendotError):
    """Message refused because the app has archived the room."""


class Restricted(GreendotError):
    """Message refused because its author is muted or banned (`kind`) until a time in milliseconds UTC."""

    def __init__(self, kind: str, until: int) -> None:
        super().__init__(f"{kind} until {until}")
        self.kind = kind
        self.until = until


class SlowMode(GreendotError):
    """Message refused because its author sent another one to a room in slow mode a moment ago."""

    def __init__(self, room: str, wait_ms: int) -> None:
        super().__init__(room)
        self.wait_ms = wait_ms


class RoomBeingDeleted(GreendotError):
    """Room refused because the rows of a deleted room with the same name are still being removed."""


class NoSuchMessage(GreendotError):
    """Change refused because its message does not exist, is itself a change, or was deleted."""


class Unstorable(GreendotError):
    """Value of a call that the store cannot hold or search for. Nothing was written."""


class BadWebhook(GreendotError):
    """Webhook request that fails verification. Answer with 400."""
