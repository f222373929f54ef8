"""What ids and text from outside may look like, and how Greendot makes its own ids.

Ids go into keys, channels and log lines; text is kept by stores and sent in frames. Both are checked once, where they
come in.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b

from greendot.errors import Unstorable

ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}\Z"
ID_RULE = "1 to 128 of the characters A-Z a-z 0-9 _ . @ = + - and not starting with a sign or dot"

# PostgreSQL keeps no NUL, and half of a surrogate pair is no UTF-8: no store can keep it, no frame carry it.
TEXT_PATTERN = r"^[^\x00\ud800-\udfff]*\Z"
TEXT_RULE = "no NUL and no half of a surrogate pair"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")

_match = re.compile(ID_PATTERN).match
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Id(str):
    """An id of a user, room, tenant or session in a log line: the settings say whether it is shown there or hashed."""

    __slots__ = ()


def valid_id(text: str) -> bool:
    """Whether `text` may name a user, room, tenant, device or key."""
    return _match(text) is not None


def valid_text(text: str) -> bool:
    """Whether every store can keep `text`."""
    if "\0" in text or text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """Return `text` with U+FFFD in place of what no store keeps: for what others answered, which is kept to be read."""
    return _NO_TEXT.sub("\ufffd", text)


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


_SIZE = 8  # bytes: enough to tell the users of a tenant apart


def hashed(key: bytes, text: str) -> str:
    """Sixteen hexadecimal digits that stand for the text under this key."""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=_SIZE, key=key[:64]).hexdigest()


def hash_key(given: str, secret: str) -> bytes | None:
    """The key to hash with: made of the one that is given, else of the servers' secret. None if there is neither."""
    if not (given or secret):
        return None
    return blake2b((given or secret).encode(), person=b"greendot-given" if given else b"greendot-hash").digest()


Key = tuple[str, str]  # tenant and room, or tenant and user
Bound = int | None  # of a page, exclusive; None: there is none


def check_text(texts: Iterable[str | None]) -> None:
    """Raise Unstorable if one of these holds what some store cannot keep.

    Asked before a write joins others in a transaction: PostgreSQL refuses all of that, and each is written again alone.
    """
    if not valid_text("".join(text for text in texts if text is not None)):  # at once: there may be tens of thousands
        raise Unstorable(f"text may have {TEXT_RULE}")
