"""What an id may look like, and how Greendot makes its own.

Ids come from outside and go into keys, channels and log lines, so they are checked once, at the door.
"""

from __future__ import annotations

import re
import secrets

ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}\Z"
ID_RULE = "1 to 128 of the characters A-Z a-z 0-9 _ . @ = + - and not starting with a sign or dot"

_match = re.compile(ID_PATTERN).match
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Id(str):
    """An id of a user, room, tenant or session in a log line: the settings say whether it is shown there or hashed."""

    __slots__ = ()


def valid_id(text: str) -> bool:
    """Whether `text` may name a user, room, tenant, device or key."""
    return _match(text) is not None


def _token(length: int) -> str:
    number, letters = secrets.randbelow(len(_ALPHABET) ** length), []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def new_incarnation() -> str:
    """A name for one life of a node. Short, because the engine stores it with every session.

    The engine refuses an incarnation it has known before, so a clash is a failed start, never a mix-up.
    """
    return _token(4)


def new_session_id(incarnation: str) -> str:
    """A session id that names its node's incarnation, so that any node can route to it."""
    return f"{incarnation}-{_token(9)}"


def incarnation_of(session: str) -> str:
    """The incarnation a session id was made under."""
    return session.partition("-")[0]


def new_key_id() -> str:
    """The part of an API key that finds it."""
    return _token(12)


def new_key_secret() -> str:
    """The part of an API key that proves it: 256 bits."""
    return _token(43)


def new_message_id() -> str:
    return secrets.token_hex(12)


def numbered_id(seq: int, token: str) -> str:
    """The id of a record that is looked up by id: it names its number in the stream, so that no index is needed."""
    return f"{seq}-{token}"


def number_of(numbered: str) -> int | None:
    """The number an id names; None if it is none of ours."""
    digits = numbered.partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None
