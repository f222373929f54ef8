"""Server that pushes to a fake FCM, with helpers for push tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from e2e.processes import Answer, ask
from fake_providers import PlayedFcm, playing
from greendot.testing.server import API_KEY, Served, serving
from redis_servers.tls import Certificates, certificates


def push_settings(fcm: PlayedFcm, made: Certificates, folder: Path) -> dict[str, Any]:
    """Return the push settings for this FCM."""
    account = folder / "account.json"
    account.write_text(fcm.account())
    return {
        "fcm_credentials_file": str(account),
        "fcm_url": fcm.url,
        "allow_private": ("127.0.0.0/8",),
        "ca_file": str(made.authority),
    }


class Pushed:
    """Server with a virtual clock, and the fake FCM it pushes to."""

    def __init__(self, served: Served, fcm: PlayedFcm) -> None:
        self.served = served
        self.fcm = fcm

    async def http(self, method: str, path: str, body: Any = None) -> Answer:
        return await ask(self.served.port, method, path, body, Authorization=f"Bearer {API_KEY}")

    async def device(self, user: str = "ann", device: str = "phone") -> None:
        body = {"provider": "fcm", "token": f"token-{user}-{device}"}
        answer = await self.http("PUT", f"/v1/users/{user}/devices/{device}", body)
        assert answer.status in (200, 201), answer

    async def notify(self, user: str = "ann", **more: Any) -> str:
        """Create a notification and return its id."""
        body = {"user": user, "kind": "ping", "body": {"title": "Hi", "text": "there"}} | more
        answer = await self.http("POST", "/v1/notifications", body)
        assert answer.status == 201, answer
        made: str = answer.json()["id"]
        return made

    async def work(self, after_s: float = 0.0, alive: Any = ()) -> list[str]:
        """Advance the clock, run the push worker once and return the keys of all messages FCM has accepted so far."""
        if after_s:
            await self.served.advance(after_s, alive)
        assert self.served.greendot.pushing is not None
        await self.served.greendot.pushing.worker.once()
        return [message.data["key"] for message in self.fcm.taken]

    async def reason(self, notification: str, tenant: str = "default") -> str:
        (record,) = await self.served.node.store.push_of(tenant, notification)
        return record.reason


@asynccontextmanager
async def pushing(folder: Path, **sections: Any) -> AsyncIterator[Pushed]:
    made = certificates(folder)
    async with playing(PlayedFcm(), made) as fcm:
        push = push_settings(fcm, made, folder) | sections.pop("push", {})
        async with serving(push=push, **sections) as served:
            fcm.clock = served.clock
            await served.lobby()
            yield Pushed(served, fcm)
