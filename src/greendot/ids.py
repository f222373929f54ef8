"""Rules for ids and text from outside, and generators of Greendot's own ids.

Ids become parts of keys, channels and log lines. Text is stored and sent in frames. Both are validated once, on input.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest
from os import register_at_fork, urandom

from greendot.errors import Unstorable

ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}\Z"
APP_USER = "system"  # author of messages and sender of signals that come from the app; no token has this user
ID_RULE = "1 to 128 of the characters A-Z a-z 0-9 _ . @ = + - and not starting with a sign or dot"

# PostgreSQL stores no NUL, and half of a surrogate pair is not UTF-8: no store can hold it and no frame can carry it.
TEXT_PATTERN = r"^[^\x00\ud800-\udfff]*\Z"
TEXT_RULE = "no NUL and no half of a surrogate pair"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")

_match = re.compile(ID_PATTERN).match
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Random bytes become letters. The last eight bytes are left out, so that each letter is equally likely.
_LETTERS = bytes(ord(_ALPHABET[byte % len(_ALPHABET)]) for byte in range(256))
_SURPLUS = bytes(range(256 - 256 % len(_ALPHABET), 256))


class Id(str):
    """Id of a user, room, tenant or session in a log line. Settings decide whether logs show or hash the id."""

    __slots__ = ()


def valid_id(text: str) -> bool:
    """Return whether `text` may name a user, room, tenant, device or key."""
    return _match(text) is not None


def valid_text(text: str) -> bool:
    """Return whether every store can hold `text`."""
    if "\0" in text or text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """Return `text` with U+FFFD in place of characters that no store holds.

    Used for reasons and notes that come from outside and are stored for people to read.
    """
    return _NO_TEXT.sub("\ufffd", text)


_SESSION_LETTERS = 9
_SESSIONS = 64  # session ids whose random parts are made together: a call of the kernel takes longer than an id
_session_tokens: list[str] = []
register_at_fork(after_in_child=_session_tokens.clear)


def _token(length: int) -> str:
    letters = b""
    while len(letters) < length:  # nearly always once: one byte of 32 is left out
        letters += urandom(length + length // 16 + 8).translate(_LETTERS, _SURPLUS)
    return letters[:length].decode()


def new_incarnation() -> str:
    """Return a random name for one life of a node. The name is short because the engine stores it with every session.

    The engine refuses an incarnation that it already knows, so a collision fails the start and mixes up no sessions.
    """
    return _token(4)


def new_session_id(incarnation: str) -> str:
    """Return a session id that begins with its node's incarnation, so that any node can route to the session."""
    try:
        return f"{incarnation}-{_session_tokens.pop()}"
    except IndexError:
        letters = _token(_SESSION_LETTERS * _SESSIONS)
        _session_tokens.extend(letters[at : at + _SESSION_LETTERS] for at in range(0, len(letters), _SESSION_LETTERS))
        return new_session_id(incarnation)


def new_stream_id(incarnation: str, key: bytes) -> str:
    """Return an unguessable id for an event stream. It names its node, and ends with a keyed hash of the rest."""
    name = f"{incarnation}-{_token(32)}"
    return name + hashed(key, name)


def is_stream_id(text: str, key: bytes) -> bool:
    """Return whether a node with this key made the stream id."""
    return compare_digest(hashed(key, text[: -2 * _SIZE]), text[-2 * _SIZE :])


def incarnation_of(session: str) -> str:
    """Return the incarnation under which a session or stream id was made."""
    return session.partition("-")[0]


def new_key_id() -> str:
    """Return the public part of an API key, by which the key is looked up."""
    return _token(12)


def new_key_secret() -> str:
    """Return the secret part of an API key: 256 bits."""
    return _token(43)


def new_message_id() -> str:
    return secrets.token_hex(12)


def numbered_id(seq: int, token: str) -> str:
    """Return a record id that contains the record's number in its stream, so that a lookup by id needs no index."""
    return f"{seq}-{token}"


def number_of(numbered: str) -> int | None:
    """Return the number in a record id, or None if Greendot did not make the id."""
    digits = numbered.partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


_SIZE = 8  # bytes: enough to distinguish the users of a tenant


def hashed(key: bytes, text: str) -> str:
    """Return the keyed hash of the text: sixteen hexadecimal digits."""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=_SIZE, key=key[:64]).hexdigest()


def hash_key(given: str, secret: str) -> bytes | None:
    """Return the hash key, derived from the given key or else from the servers' secret. Return None without either."""
    if not (given or secret):
        return None
    return blake2b((given or secret).encode(), person=b"greendot-given" if given else b"greendot-hash").digest()


Key = tuple[str, str]  # tenant and room, or tenant and user
Bound = int | None  # exclusive bound of a page; None: unbounded


def check_text(texts: Iterable[str | None]) -> None:
    """Raise Unstorable if one of the texts has a character that some store cannot hold.

    Call this before a write joins a transaction with other writes. PostgreSQL refuses the whole transaction, and every
    write is then repeated alone.
    """
    # One check of the joined text: there may be tens of thousands of texts.
    if not valid_text("".join(text for text in texts if text is not None)):
        raise Unstorable(f"text may have {TEXT_RULE}")
