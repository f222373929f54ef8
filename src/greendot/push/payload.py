"""What an app on a device is given, in as many bytes as its provider carries."""

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
    """A notification on its way to one device. However often it is sent, its key is the same."""

    key: str
    id: str
    seq: int
    kind: str
    importance: Importance
    created_at: int
    expires_at: int | None = None
    title: str | None = None  # to be shown; without title and text the app itself says what is shown
    text: str | None = None
    body: Raw | None = None  # None: the app fetches it
    collapse: str | None = None


class SendResult(NamedTuple):
    """What came of an attempt.

    `wait_s`: the provider asked for so long, of everybody who sends for this tenant. `is_away`: the provider itself is
    in trouble, not this device or message. Not `is_tried`: it was held back, and is to come again after `wait_s`.
    """

    outcome: PushOutcome
    reason: str = ""
    wait_s: float = 0.0
    is_away: bool = False
    is_tried: bool = True


class Sender(Protocol):
    """A way to devices, with one tenant's account. It does not raise: what goes wrong is an outcome."""

    async def send(self, device: Device, payload: PushPayload) -> SendResult: ...

    async def close(self) -> None: ...


class ProviderSender(Sender, Protocol):
    """A provider. What it answers is bounded in time; how many are sent at once is not."""

    def place(self, device: Device) -> str:
        """Return the host that is called for the device: failures of one host do not concern the others."""
        ...

    def is_known(self, place: str) -> bool:
        """Whether the operator chose the host, or it is a public push service. Other hosts are chosen by users."""
        ...


class SingleHostSender:
    """The part of a provider's sender that follows from a single host, chosen by the operator."""

    _caller: Caller | MultiplexedCaller

    def place(self, device: Device) -> str:
        return self._caller.host

    def is_known(self, place: str) -> bool:
        return True

    async def close(self) -> None:
        await self._caller.close()


def make_payload(push: Push, notification: Notification, device: Device, *, ids_only: bool) -> PushPayload:
    """With `ids_only` nothing of what it says leaves the house."""
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
    """The fields of the body that people can read."""
    try:
        found = decode(body, object)
    except msgspec.DecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name in ("title", "text") if isinstance(found.get(name), str)}


LONGEST_TTL_S = 28 * 86_400  # more than providers keep it


class PushContent(Struct, frozen=True, omit_defaults=True):
    """What the app reads. One it has had already has the same `key`."""

    key: str
    id: str
    seq: int
    kind: str
    created_at: int
    title: str | None = None
    text: str | None = None
    body: Raw | None = None  # None: it is to be fetched


def content(payload: PushPayload, *, shown: bool = True) -> PushContent:
    """With or without what is `shown` by itself."""
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
    """Encoded in at most so many bytes: without its body if that is too long, or with nothing but ids."""
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
    """How long the provider keeps it for a device that is off."""
    if payload.expires_at is None:
        return LONGEST_TTL_S
    return min(LONGEST_TTL_S, max(0, (payload.expires_at - now_ms) // 1000))


def short(text: str, most: int) -> str:
    """The text, or what stands for it in at most `most` ASCII characters (not more than 43)."""
    if len(text.encode()) <= most and text.isascii():
        return text
    return digest(text, most)


def digest(text: str, size: int) -> str:
    """In the characters of URL-safe base64."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode()[: min(size, 43)]
