"""Payload of a push: the data for the app on a device, in as many bytes as the provider carries."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, structs

from greendot.protocol.decoding import decode
from greendot.push.policy_model import Importance
from greendot.store.inbox import Notification
from greendot.store.push import Device, Push, PushOutcome
from greendot.transport.http2_client import MultiplexedCaller
from greendot.transport.http_client import Caller


class PushPayload(Struct, frozen=True):
    """Notification on its way to one device. The key is the same in every attempt."""

    key: str
    id: str
    seq: int
    kind: str
    importance: Importance
    created_at: int
    expires_at: int | None = None
    title: str | None = None  # shown to the user; without title and text the app decides what to show
    text: str | None = None
    body: Raw | None = None  # None: the app fetches the notification
    collapse: str | None = None


class SendResult(NamedTuple):
    """Result of a send.

    `wait_s` is the pause that the provider requests of all sends for this tenant. `is_away`: the provider itself fails,
    not this device or message. Not `is_tried`: the send was held back, and has to be repeated after `wait_s`.
    """

    outcome: PushOutcome
    reason: str = ""
    wait_s: float = 0.0
    is_away: bool = False
    is_tried: bool = True


class Sender(Protocol):
    """Sender to devices with one tenant's account. `send` does not raise: an error is an outcome."""

    async def send(self, device: Device, payload: PushPayload) -> SendResult: ...

    async def close(self) -> None: ...


class ProviderSender(Sender, Protocol):
    """Sender of one provider. The time of a send is bounded, the number of concurrent sends is not."""

    def place(self, device: Device) -> str:
        """Return the host that is called for the device: failures of one host do not affect other hosts."""
        ...

    def is_known(self, place: str) -> bool:
        """Return whether the operator chose the host, or it is a public push service. Users choose all other hosts."""
        ...


class SingleHostSender:
    """Base of senders with a single host, chosen by the operator."""

    _caller: Caller | MultiplexedCaller

    def place(self, device: Device) -> str:
        return self._caller.host

    def is_known(self, place: str) -> bool:
        return True

    async def close(self) -> None:
        await self._caller.close()


def make_payload(push: Push, notification: Notification, device: Device, *, ids_only: bool) -> PushPayload:
    """Return the payload for a device. With `ids_only` no content of the notification leaves the server."""
    shown = {} if ids_only else _shown(notification.body)
    return PushPayload(
        key=f"{notification.id}.{device.device}",
        id=notification.id,
        seq=notification.seq,
        kind=notification.kind,
        importance=push.importance,
        created_at=notification.created_at,
        expires_at=notification.expires_at,
        title=shown.get("title"),
        text=shown.get("text"),
        body=None if ids_only else Raw(notification.body),
        collapse=push.collapse,
    )


def _shown(body: bytes) -> dict[str, str]:
    """Return the fields of the body that people can read."""
    try:
        found = decode(body, object)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name in ("title", "text") if isinstance(found.get(name), str)}


LONGEST_TTL_S = 28 * 86_400  # longer than providers keep a push


class PushContent(Struct, frozen=True, omit_defaults=True):
    """Content that the app reads. A push that is sent again has the same `key`."""

    key: str
    id: str
    seq: int
    kind: str
    created_at: int
    title: str | None = None
    text: str | None = None
    body: Raw | None = None  # None: to be fetched by the app
    collapse: str | None = None  # Web Push only: other providers have their own fields for it and the importance
    importance: Importance = "normal"


def content(payload: PushPayload, *, shown: bool = True) -> PushContent:
    """Return the content for the app; without title and text unless `shown`."""
    return PushContent(
        payload.key,
        payload.id,
        payload.seq,
        payload.kind,
        payload.created_at,
        payload.title if shown else None,
        payload.text if shown else None,
        payload.body,
    )


def fitted(payload: PushPayload, encode: Callable[[PushPayload], bytes], most: int) -> tuple[PushPayload, bytes]:
    """Encode a payload in at most `most` bytes: if too long, without the body, and if still too long, with ids only."""
    found = encode(payload)
    if len(found) > most:
        payload = structs.replace(payload, body=None)
        found = encode(payload)
    if len(found) > most:
        payload = ids_only(payload)
        found = encode(payload)
    return payload, found


def ids_only(payload: PushPayload) -> PushPayload:
    return structs.replace(payload, title=None, text=None, body=None)


def ttl_s(payload: PushPayload, now_ms: int) -> int:
    """Return the seconds for which the provider keeps the push for a device that is off."""
    if payload.expires_at is None:
        return LONGEST_TTL_S
    return min(LONGEST_TTL_S, max(0, (payload.expires_at - now_ms) // 1000))


def short(text: str, most: int) -> str:
    """Return the text if it has at most `most` ASCII characters, else a digest of that length (at most 43)."""
    if len(text.encode()) <= most and text.isascii():
        return text
    return digest(text, most)


def digest(text: str, size: int) -> str:
    """Return a SHA-256 digest of the text in URL-safe base64, cut to `size` (at most 43) characters."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode()[: min(size, 43)]
