"""Push payload and devices for tests."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, structs

from greendot.push.payload import PushPayload
from greendot.store.push import Device, Provider

BODY = b'{"title":"Mia","text":"Are you there?","room":"lobby"}'
PAYLOAD = PushPayload(
    key="n1.phone",
    id="n1",
    seq=7,
    kind="message",
    importance="normal",
    created_at=1_700_000_000_000,
    title="Mia",
    text="Are you there?",
    body=Raw(BODY),
)


def payload(**changes: Any) -> PushPayload:
    return structs.replace(PAYLOAD, **changes)


def device(provider: Provider, token: str, **changes: Any) -> Device:
    return Device("default", "ada", "phone", provider, token, 0, 0)._replace(**changes)
