"""Push endpoints with silent name servers block neither webhooks nor the server's own lookups."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.processes import ask, until
from greendot.push.providers.signing import new_vapid_key
from greendot.testing import serving
from greendot.testing.server import API_KEY
from receiver import SECRET, receiving
from silent_names import silent_names

HOSTS = 20
LOOPBACK = ("127.0.0.0/8", "::1/128")


def subscription(host: str) -> str:
    _, point = new_vapid_key()
    return json.dumps({"endpoint": f"https://{host}/x", "keys": {"p256dh": point, "auth": "A" * 22}})


async def test_webhooks_go_on_while_push_endpoints_of_a_user_cannot_be_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greendot.app.push.FINISH_S", 0.1)
    key = tmp_path / "vapid.pem"
    key.write_text(new_vapid_key()[0])
    # As many threads as uvloop has for lookups of the loop.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    push = {"webpush_key_file": str(key), "webpush_subject": "mailto:ops@app.example"}
    with silent_names(monkeypatch) as names:
        async with receiving() as app:
            hook = {"url": f"http://localhost:{app.port}/hook", "secret": SECRET, "allow_private": LOOPBACK}
            async with serving(webhooks=hook | {"batch_wait_ms": 10}, push=push) as served:
                await served.lobby()
                for number in range(HOSTS):
                    body = {"provider": "webpush", "token": subscription(f"push.silent{number}.test")}
                    path = f"/v1/users/eve/devices/d{number}"
                    answer = await ask(served.port, "PUT", path, body, Authorization=f"Bearer {API_KEY}")
                    assert answer.status == 201
                made = {"user": "eve", "kind": "ping", "body": {}}
                await ask(served.port, "POST", "/v1/notifications", made, Authorization=f"Bearer {API_KEY}")
                assert served.greendot.pushing is not None
                served.greendot.pushing.worker.start()
                await until(lambda: names.under_way >= 4)
                ann = await served.joined("ann")
                for number in range(10):
                    await ann.request(type="room.send", room="lobby", body=number)
                await until(lambda: len(app.of("room.message")) == 10)
                async with asyncio.timeout(10):  # as for the names of Redis and PostgreSQL
                    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
                assert names.most_under_way <= 8, "too many concurrent lookups of one tenant"
                assert len(names.asked) == len({*names.asked}), "a name was looked up twice"
