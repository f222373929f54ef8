"""Webhook events, their data, and their signature.

A signature covers a whole delivery: `Greendot-Signature: t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY` with the
webhook's secret. While a secret is being replaced, there is one `v1` for each of the two secrets.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from greendot.protocol.decoding import decoder
from greendot.protocol.events import MarkedAs

SIGNATURE = "Greendot-Signature"
DELIVERY = "Greendot-Delivery"
TOLERANCE_S = 300
_MOST_HEADER = 1024  # characters; two signatures are 150

SIGNALS = ("user.online", "user.offline", "room.occupied", "room.vacated")  # best effort
# At least once; retries keep the id.
RECORDS = ("room.message", "notification.created", "notification.updated", "audit.created")
TYPES = (*SIGNALS, *RECORDS)
PING = "ping"  # type of the event that `greendot webhooks test` sends


class HookEvent(Struct, frozen=True, gc=False):
    """Event of a webhook. A retry has the same id."""

    id: str
    type: str
    tenant: str
    at: int
    data: Raw


class HookDelivery(Struct, frozen=True):
    """Body of one webhook request."""

    id: str
    sent_at: int
    events: list[HookEvent]


_decode = decoder(HookDelivery)


class OfUser(Struct, frozen=True, gc=False):
    """Data of `user.online` and `user.offline`."""

    user: str


class OfRoom(Struct, frozen=True, gc=False):
    """Data of `room.occupied` and `room.vacated`."""

    room: str


class CreatedFor(Struct, frozen=True, gc=False):
    """Data of `notification.created`."""

    user: str
    seq: int
    id: str
    kind: str
    body: Raw
    created_at: int
    ack: bool


class UpdatedFor(Struct, frozen=True, gc=False):
    """Data of `notification.updated`."""

    user: str
    state: MarkedAs
    ids: list[str]


class Audited(Struct, frozen=True, gc=False):
    """Data of `audit.created`."""

    number: int
    actor: str
    action: str
    room: str | None
    user: str | None
    ref: int | None
    reason: str | None
    until: int | None
    slow_mode_s: int | None


class BadSignature(ValueError):
    """Delivery that Greendot did not send, or did not send recently.

    The message gives the reason, never the expected value.
    """


def sign(secret: str, seconds: int, body: bytes) -> str:
    """Return one signature in hexadecimal."""
    return hmac.new(secret.encode(), b"%d." % seconds + body, "sha256").hexdigest()


def signature(secrets: Sequence[str], seconds: int, body: bytes) -> str:
    """Return the value of the signature header, with one signature per secret."""
    return ",".join((f"t={seconds}", *(f"v1={sign(secret, seconds, body)}" for secret in secrets)))


def check_signature(body: bytes, header: str, secret: str, now_s: float, tolerance_s: float = TOLERANCE_S) -> None:
    """Raise BadSignature unless the header has a recent signature of this body by this secret.

    The time of the signature may differ from `now_s` by `tolerance_s`, in either direction.
    """
    if not secret:
        raise BadSignature("there is no secret to verify the webhook with; pass the webhook's secret")
    seconds, given = _parts(header)
    # Check the signature before the time: a sender without the secret learns nothing about the clock.
    expected = sign(secret, seconds, body).encode()
    # Compare all signatures, each in constant time.
    matches = [hmac.compare_digest(expected, one.encode(errors="replace")) for one in given]
    if not any(matches):
        raise BadSignature("the signature does not match; check the secret, and pass the body exactly as received")
    if abs(now_s - seconds) > tolerance_s:
        raise BadSignature("the signature is too old or from the future; check the clocks of the app and the server")


def read_delivery(
    body: bytes, header: str, secret: str, now_s: float, tolerance_s: float = TOLERANCE_S
) -> HookDelivery:
    """Return the delivery if `header` proves that Greendot sent these bytes recently. Raise BadSignature otherwise."""
    check_signature(body, header, secret, now_s, tolerance_s)
    try:
        return _decode(body)
    except msgspec.DecodeError:
        raise BadSignature(
            "the webhook is signed, but this version of the library cannot read its body; update the library"
        ) from None


def _parts(header: str) -> tuple[int, list[str]]:
    seconds, given = "", list[str]()
    for part in header.split(",") if len(header) <= _MOST_HEADER else ():
        name, _, value = part.strip().partition("=")
        if name == "t":
            seconds = value
        elif name == "v1":
            given.append(value)
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= 12 and given):
        raise BadSignature(f"the webhook has no {SIGNATURE} header with `t` and `v1`")
    return int(seconds), given
