"""Token claims on the wire, and signing with a shared secret by an app's backend."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from greendot.errors import TokenError
from greendot.ids import ID_PATTERN, TEXT_PATTERN
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, has_vast_number, is_too_deep

MOST_INFO = 1_024  # bytes of the claim `info` as JSON
MOST_CHARACTERS = 64 * 1024  # maximum length of a frame; a longer token is refused unread
Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@=+*-]{1,128}\Z")]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=200, pattern=TEXT_PATTERN)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]  # since 1970; bounded because Python's JSON decoder accepts Infinity


class Claims(Struct):
    """Claims that the server reads from a token. All other claims belong to the app."""

    sub: Id
    exp: Seconds
    tenant: Id | UnsetType = UNSET
    name: Text | None = None
    info: dict[str, Any] | None = None
    rooms: Patterns = ()
    watch: Patterns | None = None
    send: bool = True
    iat: Seconds | None = None
    nbf: Seconds | None = None
    jti: Text | None = None
    aud: Any = None  # `aud` and `iss` belong to the app too, unless the settings require them
    iss: Any = None
    channel: Any = None  # of a subscription token of a foreign protocol, which is no token of a session


def claims_in(payload: Any) -> Claims:
    """Return the claims of a decoded token.

    Raise TokenError if a claim is wrong; the message names the claim and does not repeat its value.
    """
    try:
        claims = msgspec.convert(payload, Claims)
    except msgspec.ValidationError as error:
        raise TokenError(f"invalid claim in the token: {error}".replace("`$.", "`")) from None
    info_in(claims)
    return claims


def info_in(claims: Claims) -> bytes | None:
    """Return the encoded claim `info`; None without it. Raise TokenError if it is too large."""
    if claims.info is None:
        return None
    try:
        return encoded_info(claims.info)
    except ValueError as error:
        raise TokenError(f"invalid claim in the token: `info` {error}") from None


def encoded_info(info: dict[str, Any]) -> bytes:
    """Return the info of a user as JSON; empty for an empty object, which stands for no info.

    Raise ValueError, which continues the name of the field, if the info cannot be sent to every client.
    """
    if not info:
        return b""
    try:
        data = msgspec.json.encode(info)
    except (UnicodeError, ValueError, TypeError, RecursionError, OverflowError, msgspec.MsgspecError):
        raise ValueError("must be plain JSON; give text without halves of surrogate pairs") from None
    if len(data) > MOST_INFO:
        raise ValueError(f"may have at most {MOST_INFO} bytes as JSON, not {len(data)}; give less, such as a URL")
    if is_too_deep(data):
        raise ValueError(f"may be nested at most {MAX_DEPTH} levels deep")
    if has_vast_number(data):
        raise ValueError(VAST_NUMBER)
    return data


def sign_hs256(secret: str, claims: dict[str, Any]) -> str:
    """Return the claims as a token signed with HMAC-SHA256."""
    signed = b".".join(_part(part) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return b".".join((signed, _encoded(hmac.digest(secret.encode(), signed, "sha256")))).decode()


def _part(value: dict[str, Any]) -> bytes:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
