"""Personal data in logs: at most ids, and hashed ids if so configured."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import API_KEY, SECRET, Process, ask, running
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.testing import Closed, WireClient
from greendot.testing.wire import TEXT

USER, OTHER, ROOM, TENANT = "marked-user", "marked-other", "marked-room", "marked-tenant"
NAME, BODY, STATUS, KEY = "Marked Name", "marked body", "marked status", "marked-key"
HOOK_SECRET, HASH_KEY = "marked hook secret, long enough for it", "marked hash key, which is long enough"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WRONG_KEY, AGENT = "marked-wrong-api-key", "Marked Agent/1.0"


async def busy(server: Process) -> list[str]:
    """Use the server in all ways, right and wrong. Return the texts that must not be in its log."""
    token = Tokens(SECRET).make(USER, SystemClock().now_ms(), 3600, name=NAME)
    other = Tokens(SECRET).make(OTHER, SystemClock().now_ms(), 3600, tenant=TENANT, name=NAME)
    forged, expired = Tokens("x" * 40).make(USER, SystemClock().now_ms(), 60), Tokens(SECRET).make(USER, 1_000, 1)
    await use_the_api(server, token)
    client = await WireClient.connect(server.port, headers={"User-Agent": AGENT})
    await client.hello(token, device="marked-device")
    for command in commands():
        await client.request(**command)
    await misbehave(server, client, token)
    for bad in (forged, expired, "marked.bad.token", token[:-4]):
        await refused(server, bad)
    await refused(server, "", f"/v1/connect?token={token}")
    async with await WireClient.connect(server.port, headers={"Authorization": f"Bearer {other}"}) as second:
        await second.hello("")
    await client.reset()
    return [token, other, forged, expired, "marked.bad.token", BODY, STATUS, NAME, KEY, AGENT, WRONG_KEY]


def commands() -> list[dict[str, Any]]:
    return [
        {"type": "status.set", "status": "busy", "text": STATUS},
        {"type": "watch", "users": [OTHER]},
        {"type": "room.join", "room": ROOM},
        {"type": "typing.start", "room": ROOM},
        {"type": "room.send", "room": ROOM, "body": BODY, "key": KEY, "traceparent": TRACEPARENT},
        {"type": "room.edit", "room": ROOM, "ref": 1, "body": BODY},
        {"type": "signal.send", "room": ROOM, "kind": "k", "body": BODY},
        {"type": "inbox.list"},
        {"type": "inbox.read", "through": 1},
    ]


async def use_the_api(server: Process, token: str) -> None:
    assert (await server.ask("PUT", f"/v1/rooms/{ROOM}", {"open": True})).status in (200, 201)
    notice = {"user": USER, "kind": "k", "body": BODY, "key": KEY}
    assert (await server.ask("POST", "/v1/notifications", notice)).status == 201
    for wrong in (notice | {"kind": BODY}, {"user": BODY}, BODY, f'{{"body": "{BODY}'.encode()):
        assert (await server.ask("POST", "/v1/notifications", wrong)).status == 400
    assert (await server.ask("POST", f"/v1/rooms/{ROOM}/messages", {"user": USER, "body": BODY * 9_000})).status == 413
    assert (await server.ask("GET", f"/v1/users/{USER}/presence", key=WRONG_KEY)).status == 401
    assert (await server.ask("GET", f"/v1/users/{BODY.replace(' ', '%20')}/presence")).status == 400
    assert (await server.ask("GET", f"/v1/nothing/{USER}?token={token}")).status == 404
    assert await ask(server.port, "GET", f"/v1/users/{USER}/inbox?filter={KEY}", Authorization=f"Bearer {API_KEY}")


async def misbehave(server: Process, client: WireClient, token: str) -> None:
    client.send_frame(TEXT, f'{{"type": "room.send", "body": "{BODY}'.encode())
    for wrong in ({"type": BODY}, {"type": "room.send", "room": BODY, "body": BODY}, {"type": "room.send", "body": 1}):
        client.send(**wrong)
    client.send(type="room.send", room="marked-elsewhere", body=BODY)
    client.send(type="token.refresh", token=token[:-3], id=1)
    with suppress(Closed):
        await client.quiet()


async def refused(server: Process, token: str, path: str = "/v1/connect") -> None:
    async with await WireClient.connect(server.port, path) as client:
        client.send(type="hello", token=token)
        await client.closed()


@pytest.mark.parametrize("ids", ["plain", "hashed"])
async def test_no_log_line_has_a_token_a_body_a_key_or_a_name_in_it(ids: str, tmp_path: Path) -> None:
    environment = {
        "GREENDOT_SERVER_LOG": "debug",
        "GREENDOT_PRIVACY_LOG_IDS": ids,
        "GREENDOT_PRIVACY_HASH_KEY": HASH_KEY,
        "GREENDOT_WEBHOOKS_URL": "http://127.0.0.1:9/marked-path?token=marked-password",
        "GREENDOT_WEBHOOKS_SECRET": HOOK_SECRET,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_PRESENCE_POLLED": f"default/{OTHER}",  # the log mentions the watchers of this user
    }
    async with running(tmp_path, **environment) as server:
        (session,) = await sessions_after(server)
        secrets = await busy(server)
        server.signal(signal.SIGTERM)
        ended = await server.ended()
    log = ended.err
    assert "connection ended" in log
    assert "POST /v1/notifications refused with status 400" in log
    for secret in (*secrets, SECRET, API_KEY, HOOK_SECRET, HASH_KEY, "marked-password"):
        assert secret not in log, f"{secret} is in the log:\n{log}"
    shown = [name for name in (USER, OTHER, ROOM, TENANT, session) if name in log]
    assert (shown == []) is (ids == "hashed"), log
    assert ("#" in log) is (ids == "hashed")
    assert '"record.written"' in log, "the log has no traced event to check"
    for name in (USER, OTHER, ROOM, TENANT) if ids == "plain" else ():
        log = log.replace(name, "")
    assert "marked" not in log.lower()


async def sessions_after(server: Process) -> list[str]:
    """Return the session of a user who has connected and left."""
    async with await server.client("somebody") as client:
        return [client.welcome["session"]]
