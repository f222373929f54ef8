"""What is sent to a device, and what a way to send it must do."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from greendot.protocol.decoding import decode
from greendot.push.policy_model import Importance
from greendot.store.port import Notification
from greendot.store.push import Device, Outcome, Push


class Parcel(Struct, frozen=True):
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


class Sent(NamedTuple):
    """What came of an attempt.

    `wait_s`: the provider asked for so long, of everybody who sends for this tenant. `is_away`: the provider itself is
    in trouble, not this device or message. Not `is_tried`: it was held back, and is to come again after `wait_s`.
    """

    outcome: Outcome
    reason: str = ""
    wait_s: float = 0.0
    is_away: bool = False
    is_tried: bool = True


class Sender(Protocol):
    """A way to devices, with one tenant's account. It does not raise: what goes wrong is an outcome."""

    async def send(self, device: Device, parcel: Parcel) -> Sent: ...

    async def close(self) -> None: ...


class ProviderSender(Sender, Protocol):
    """A provider. What it answers is bounded in time; how many are sent at once is not."""

    def place(self, device: Device) -> str:
        """Return the host that is called for the device: failures of one host do not concern the others."""
        ...

    def is_known(self, place: str) -> bool:
        """Whether the operator chose the host, or it is a public push service. Other hosts are chosen by users."""
        ...


def parcel(push: Push, notification: Notification, device: Device, *, ids_only: bool) -> Parcel:
    """With `ids_only` nothing of what it says leaves the house."""
    shown = {} if ids_only else _shown(notification.body)
    return Parcel(
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
