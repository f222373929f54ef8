"""Traffic for each panel of the Grafana dashboard: real clients, providers, an app, floods and failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from deployed.grafana import WIDTHS, Prometheus
from deployed.production import WAIT_S, Production, producing, until_data
from deployed.programs import program
from e2e.narrow import Peer
from fake_providers import Answer, Played, PlayedApns, PlayedApp, PlayedFcm, PlayedWebPush, playing, vapid_key
from fake_providers.apns import KEY_ID, TEAM, TOPIC
from fake_providers.requests import Asked, Does
from fake_providers.webhook import SECRET as PUSH_SECRET
from greendot.client import Client, CommandRefused
from greendot.testing import WireClient
from receiver import SECRET as WEBHOOK_SECRET
from receiver import receiving
from redis_servers.tls import certificates

# Documented settings of nodes: shorter times, so that the test need not wait, and lower limits, so that less traffic
# reaches them.
SETTINGS = {
    "GREENDOT_NODE_LEASE_S": "6",
    "GREENDOT_NODE_RENEW_S": "1.5",
    "GREENDOT_PRESENCE_GRACE_S": "2",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1",
    "GREENDOT_PRESENCE_SILENT_GRACE_S": "2",
    "GREENDOT_PRESENCE_IDLE_S": "3",
    "GREENDOT_JOBS_SWEEP_EVERY_S": "5",
    "GREENDOT_JOBS_SWEEP_JITTER_S": "0",
    "GREENDOT_DOOR_CONNECTIONS_PER_IP": "20",
    "GREENDOT_LIMITS_KEY_REQUESTS_PER_S": "10",
    "GREENDOT_LIMITS_ROOM_TYPING_PER_S": "5",
    "GREENDOT_LIMITS_USER_WATCHES_PER_S": "100",
    "GREENDOT_LIMITS_TENANT_WATCHES_PER_S": "400",
    "GREENDOT_OUTBOX_URL": "store",
    "GREENDOT_PUSH_ACTIVE_HOLD_S": "2",
    "GREENDOT_PUSH_IDLE_HOLD_S": "1",
    "GREENDOT_PUSH_PER_HOUR": "3",
    "GREENDOT_PUSH_ALLOW_PRIVATE": "127.0.0.0/8",
    "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
}
OUTCOMES = ("sent", "failed", "refused", "gone")  # of a push
BIG = "x" * 60_000
APP = "shop"  # sender of messages of the app


@dataclass
class World:
    """Running services, and everything around them."""

    production: Production
    prometheus: Prometheus
    providers: dict[str, Played]
    vapid: str  # public key

    def are_counted(self, *expressions: str) -> bool:
        """Return whether Prometheus has scraped a value above 0 of each expression."""
        return all(any(value > 0 for value in self.prometheus.now(each).values()) for each in expressions)

    async def counted(self, expression: str) -> None:
        """Wait until Prometheus has scraped a value above 0."""
        try:
            await until_data(lambda: self.are_counted(expression))
        except TimeoutError:
            raise AssertionError(f"not above 0 in time: {expression}") from None


@asynccontextmanager
async def providers(folder: Path) -> AsyncIterator[tuple[dict[str, Played], dict[str, str], str]]:
    """Run a fake of each push provider; yield them with the settings of the nodes and the public VAPID key."""
    made = certificates(folder)
    fcm, apns = PlayedFcm(), PlayedApns()
    played: dict[str, Played] = {"fcm": fcm, "apns": apns, "webpush": PlayedWebPush(), "webhook": PlayedApp()}
    async with AsyncExitStack() as stack:
        for one in played.values():
            await stack.enter_async_context(playing(one, made))
        (folder / "account.json").write_text(fcm.account())
        (folder / "apple.p8").write_text(apns.key())
        vapid = vapid_key(folder)
        given = {
            "FCM_CREDENTIALS_FILE": folder / "account.json",
            "FCM_URL": fcm.url,
            "APNS_KEY_FILE": folder / "apple.p8",
            "APNS_KEY_ID": KEY_ID,
            "APNS_TEAM_ID": TEAM,
            "APNS_TOPIC": TOPIC,
            "APNS_URL": apns.url,
            "WEBPUSH_KEY_FILE": vapid.file,
            "WEBPUSH_SUBJECT": "mailto:ops@app.example",
            "WEBHOOK_URL": f"{played['webhook'].url}/push",
            "WEBHOOK_SECRET": PUSH_SECRET,
            "CA_FILE": made.authority,
        }
        yield played, {f"GREENDOT_PUSH_{name}": str(value) for name, value in given.items()}, vapid.public


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Run production.yml with push providers and an app, whose first response to a webhook is an error."""
    for name in ("caddy", "prometheus"):
        program(name)
    failures = [500]
    async with (
        providers(folder) as (played, given, vapid),
        receiving(lambda events: failures.pop() if failures else 200) as app,
    ):
        hook = {"GREENDOT_WEBHOOKS_URL": app.url, "GREENDOT_WEBHOOKS_SECRET": WEBHOOK_SECRET}
        async with producing(folder, **SETTINGS, **given, **hook) as production:
            datasource = production.folder / "grafana" / "etc/grafana/provisioning/datasources/greendot.yml"
            yield World(production, Prometheus(datasource), played, vapid)


# --- conversation ---


async def converse(there: World, alice: Client, bob: Client) -> None:
    """Let clients behind Caddy use rooms, presence and the inbox."""
    production = there.production
    await production.must("PUT", "/v1/rooms/lobby", {"open": True, "receipts": True})
    await production.must("PUT", "/v1/rooms/vault", {"open": False})
    for client in (alice, bob):
        await client.join("lobby")
    await bob.watch("alice", "carol")
    await alice.activity()
    for number in range(20):
        sent = await alice.send("lobby", {"text": f"message {number}"})
    await bob.react("lobby", sent.seq, "+1")
    await bob.read("lobby", sent.seq)
    await bob.typing("lobby")
    await alice.signal("wave", room="lobby", body={"x": 1}, reply=True)
    with suppress(CommandRefused):
        await bob.join("vault")
    for number in range(3):
        await notify(production, "alice", key=f"alice-{number}")
    await alice.inbox.seen(through=3)
    await alice.inbox.read(through=3)


async def notify(production: Production, user: str, **more: Any) -> None:
    body = {"user": user, "kind": "order.shipped", "body": {"title": "Order", "text": "It is on its way"}}
    await production.must("POST", "/v1/notifications", body | more)


async def lose_and_resume(there: World) -> None:
    """Let a client miss a message and a notification, and resume its session."""
    production = there.production
    first = await production.wire(0, "carol", device="laptop")
    await first.request(type="room.join", room="lobby")
    session = first.welcome["session"]
    await first.reset()
    await production.must("POST", "/v1/rooms/lobby/messages", {"user": APP, "body": {"text": "missed"}})
    await notify(production, "carol")
    resume = {"session": session, "rooms": {"lobby": 1}, "inbox": 0}
    back = await production.wire(1, "carol", device="laptop", resume=resume)
    await back.quiet()
    await back.end()


# --- pushes ---


def token(there: World, provider: str, number: int) -> tuple[str, str]:
    """Return a device token, and the text that a request for it contains."""
    played = there.providers[provider]
    if isinstance(played, PlayedWebPush):
        made = played.subscribe(there.vapid)
        return made, f"/push/{number}-secret"
    made = f"{number:x}" * 64 if provider == "apns" else f"device-{number}"
    return made, made


async def push(there: World) -> None:
    """Push with each provider: a success, an error, a refusal and an unregistered device."""
    for provider, played in there.providers.items():
        marks = {}
        for number, outcome in enumerate(OUTCOMES):
            given, mark = token(there, provider, number)
            marks[outcome] = mark
            path = f"/v1/users/{provider}-{outcome}/devices/phone"
            await there.production.must("PUT", path, {"provider": provider, "token": given})
        answers = {marks["failed"]: Answer(503), marks["refused"]: Answer(400)}
        played.behave = answering(answers)
        gone: Any = played.gone  # type: ignore[attr-defined]  # every fake has it
        if isinstance(gone, dict):
            gone[marks["gone"]] = int(time.time() * 1000) + 60_000
        else:
            gone.add(marks["gone"])
        for outcome in OUTCOMES:
            await notify(there.production, f"{provider}-{outcome}")


def answering(answers: dict[str, Answer]) -> Any:
    """Return the behaviour of a provider that answers requests with these texts, and accepts others."""

    def behave(asked: Asked) -> Does:
        text = asked.path + asked.body.decode(errors="replace")
        return next((answer for mark, answer in answers.items() if mark in text), None)

    return behave


async def hold_pushes(there: World, alice: Client) -> None:
    """Create a notification for each reason to hold or to drop a push."""
    production = there.production
    begins, ends = (time.strftime("%H:%M", time.gmtime(time.time() + 3600 * hours)) for hours in (-6, 6))
    quiet = {"quiet_hours": {"begins": begins, "ends": ends}, "time_zone": "UTC"}
    await production.must("PUT", "/v1/users/quiet/push", quiet)
    await production.must("PUT", "/v1/users/busy/status", {"status": "busy"})
    for user in ("alice", "idle", "quiet", "busy", "eager"):
        device = {"provider": "webhook", "token": f"device-of-{user}"}
        await production.must("PUT", f"/v1/users/{user}/devices/phone", device)
    for user in ("quiet", "busy", "without-device", *["eager"] * 5):
        await notify(production, user)
    async with await production.wire(0, "idle") as idle:
        async with asyncio.timeout(WAIT_S):
            # The push is decided twice: at once, as alice is active; and after the hold, as she has seen it.
            while not await asyncio.to_thread(
                there.are_counted, "push_decided_active_total", "push_decided_seen_total"
            ):
                await see_all(production, alice)
                await notify(production, "alice")
                await see_all(production, alice)
                await asyncio.sleep(0.5)
        await notify(production, "alice")  # stays unseen
        await until_idle(idle)
        await notify(production, "idle")
        for reason in ("quiet_hours", "busy", "over_the_cap", "idle", "unseen"):
            await there.counted(f"push_decided_{reason}_total")


async def see_all(production: Production, user: Client) -> None:
    """Mark the notifications of alice as seen, which is activity."""
    inbox = await production.must("GET", "/v1/users/alice/inbox?limit=1")
    await user.inbox.seen(through=inbox["head"])


async def until_idle(client: WireClient) -> None:
    """Wait until the user of the client is shown as idle."""
    async with asyncio.timeout(30):
        while True:
            (presence,) = (await client.request(type="presence.get", users=["idle"]))["presence"]
            if presence["state"] == "idle":
                return
            await asyncio.sleep(0.2)


# --- app outbox ---


async def write_outbox(there: World) -> None:
    """Write rows to the app outbox: one that is sent, one that has expired and one that cannot be sent."""
    production = there.production
    password, place = production.secrets["POSTGRES_PASSWORD"], production.addresses["postgres"]
    link = await asyncpg.connect(f"postgresql://greendot:{password}@{place}/greendot")
    insert = (
        "INSERT INTO greendot_outbox (target, user_id, kind, body, expires_at) VALUES ('notification', $1, $2, $3, $4)"
    )
    try:
        for user, kind, expires in (("alice", "order", None), ("alice", "order", "2020"), ("alice", "k" * 200, None)):
            at = None if expires is None else await link.fetchval("SELECT '2020-01-01'::timestamptz")
            await link.execute(insert, user, kind, '{"order": 17}', at)
    finally:
        await link.close()


# --- slow clients and floods ---


async def read_slowly(there: World) -> None:
    """Let a client stop reading, until signals are replaced and dropped, and then its connection is closed."""
    production = there.production
    await production.must("PUT", "/v1/rooms/crowd", {"open": True})
    host = f"127.0.0.1:{production.nodes[0]}"
    async with (
        await Peer.connect(production.nodes[0], host=host) as slow,
        await production.wire(0, "speaker") as speaker,
    ):
        await slow.hello(production.token("slow"))
        for client in (slow, speaker):
            await client.request(type="room.join", room="crowd")
        slow.stop_reading()
        for key in ["same"] * 30 + [None] * 30:
            speaker.send(type="signal.send", room="crowd", kind="cursor", body=BIG, key=key)
            await speaker.quiet()
        for expression in ("realtime_coalesced_total", 'realtime_dropped_total{reason="slow"}'):
            await there.counted(expression)
        # Long enough for a point in a panel.
        await until_data(lambda: any(there.prometheus.values("sum(realtime_outbox_bytes)", {}, WIDTHS[0])))
        for _ in range(30):
            await speaker.request(type="room.send", room="crowd", body=BIG)
        await there.counted("realtime_client_slow_closed_total")


async def refuse(there: World) -> None:
    """Reach the ingress policy and each rate limit."""
    production = there.production
    port = production.nodes[0]
    for headers in ({"Origin": "https://other.example"}, {"Host": "other.example"}):
        with suppress(ConnectionError):
            await (await WireClient.connect(port, headers=headers)).end()
    async with AsyncExitStack() as stack:
        for _ in range(25):
            with suppress(ConnectionError):
                await stack.enter_async_context(await WireClient.connect(port, source="127.0.0.9"))
    async with await production.wire(0, "flooder") as flooder:
        await flooder.request(type="room.join", room="crowd")
        for _ in range(40):
            flooder.send(type="typing.start", room="crowd")
        for number in range(2):
            flooder.send(type="watch", users=[f"user-{number}-{other}" for other in range(300)])
        for _ in range(300):
            flooder.send(type="unwatch", users=["nobody-known"])
        await there.counted("realtime_rate_limited_connection_total")
    many = {"users": [f"user-{number}" for number in range(1000)]}
    for _ in range(4):
        await production.http("POST", "/v1/presence/query", many)
    for _ in range(60):
        await production.http("GET", "/v1/rooms/lobby")


async def invalid_bus_message(there: World) -> None:
    """Publish a message without a signature on each channel of the bus."""
    host, _, port = there.production.addresses["valkey"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"AUTH {there.production.secrets['REDIS_PASSWORD']}\r\nPUBSUB CHANNELS\r\n".encode())
        assert (await reader.readline()).startswith(b"+OK")
        count = int((await reader.readline())[1:])
        for _ in range(count):
            size = int((await reader.readline())[1:])
            channel = (await reader.readexactly(size + 2))[:-2]
            writer.write(b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$4\r\njunk\r\n" % (size, channel))
        await writer.drain()
    finally:
        writer.close()
