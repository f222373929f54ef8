"""What an app on a device is given, in as many bytes as its provider carries."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

from msgspec import Raw, Struct, structs

from greendot.push.sender import Parcel

LONGEST_TTL_S = 28 * 86_400  # more than providers keep it


class Content(Struct, frozen=True, omit_defaults=True):
    """What the app reads. One it has had already has the same `key`."""

    key: str
    id: str
    seq: int
    kind: str
    created_at: int
    title: str | None = None
    text: str | None = None
    body: Raw | None = None  # None: it is to be fetched


def content(parcel: Parcel, *, shown: bool = True) -> Content:
    """With or without what is `shown` by itself."""
    return Content(
        parcel.key,
        parcel.id,
        parcel.seq,
        parcel.kind,
        parcel.created_at,
        parcel.title if shown else None,
        parcel.text if shown else None,
        parcel.body,
    )


def fitted(parcel: Parcel, encode: Callable[[Parcel], bytes], most: int) -> tuple[Parcel, bytes]:
    """Encoded in at most so many bytes: without its body if that is too long, or with nothing but ids."""
    found = encode(parcel)
    if len(found) > most:
        parcel = structs.replace(parcel, body=None)
        found = encode(parcel)
    if len(found) > most:
        parcel = ids_only(parcel)
        found = encode(parcel)
    return parcel, found


def ids_only(parcel: Parcel) -> Parcel:
    return structs.replace(parcel, title=None, text=None, body=None)


def ttl_s(parcel: Parcel, now_ms: int) -> int:
    """How long the provider keeps it for a device that is off."""
    if parcel.expires_at is None:
        return LONGEST_TTL_S
    return min(LONGEST_TTL_S, max(0, (parcel.expires_at - now_ms) // 1000))


def short(text: str, most: int) -> str:
    """The text, or what stands for it in at most `most` ASCII characters (not more than 43)."""
    if len(text.encode()) <= most and text.isascii():
        return text
    return digest(text, most)


def digest(text: str, size: int) -> str:
    """In the characters of URL-safe base64."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode()[: min(size, 43)]
