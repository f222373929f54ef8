"""Traces across nodes, store, apps, logs and a collector."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster.nodes import Clients, Listener, redis_url, serving
from collector import Span, collecting
from e2e.processes import API_KEY, Process, ask, until
from receiver import SECRET, Receiver, receiving
from redis_servers import RedisProcess

SPOKEN, POSTED, UNSAMPLED = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d", "2" * 32
MALFORMED: tuple[Any, ...] = ("nonsense", "00-xyz", 7, ["00"], {"a": {"b": 1}}, True, "x" * 10_000)


def parent(trace: str, flags: str = "01") -> str:
    return f"00-{trace}-b7ad6b7169203331-{flags}"


def traces(client: Listener, kind: str) -> list[str | None]:
    """Return the traces of all events of a type."""
    found = (told.frame.get("traceparent") for told in client.told if told.type == kind)
    return [None if text is None else text.split("-")[1] for text in found]


async def post(node: Process, body: dict[str, Any], **headers: str) -> None:
    key = f"Bearer {API_KEY}"
    answer = await ask(node.port, "POST", "/v1/notifications", body, Authorization=key, **headers)
    assert answer.status == 201, answer


async def test_a_trace_is_propagated_with_messages_and_notifications(tmp_path: Path, redis: RedisProcess) -> None:
    with collecting() as collector:
        async with receiving() as app:
            env = {
                "GREENDOT_SERVER_LOG": "debug",
                "GREENDOT_TRACES_ENDPOINT": collector.url,
                "GREENDOT_WEBHOOKS_URL": app.url,
                "GREENDOT_WEBHOOKS_SECRET": SECRET,
                "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
            }
            async with serving(tmp_path, *[redis_url(redis.port)] * 2, **env) as nodes, Clients() as clients:
                await spoken(nodes, clients)
                await posted(nodes, clients, app)
                logs = []
                for node in nodes:
                    node.signal(signal.SIGTERM)
                    logs.append((await node.ended()).err)
    are_logged(*logs)
    are_collected(collector.spans)


async def spoken(nodes: list[Process], clients: Clients) -> None:
    here, there = nodes
    for room, bus in (("den", "full"), ("vault", "hint")):
        assert (await here.ask("PUT", f"/v1/rooms/{room}", {"open": True, "bus": bus})).status < 300
    ann, bob = await clients.join(here, "ann"), await clients.join(there, "bob")
    for client in (ann, bob):
        for room in ("den", "vault"):
            await client.request(type="room.join", room=room)
    send = {"type": "room.send", "room": "den", "body": "hi"}
    await ann.request(**send, traceparent=parent(SPOKEN))
    await ann.request(**send | {"room": "vault"}, traceparent=parent(SPOKEN))
    await ann.request(**send, traceparent=parent(UNSAMPLED, "00"))
    for nonsense in MALFORMED:
        await ann.request(**send, traceparent=nonsense)
    ann.send(type="signal.send", room="den", kind="wave", traceparent=parent(SPOKEN))
    for client in (ann, bob):
        await until(lambda client=client: len(client.of("room.message")) == 3 + len(MALFORMED))
        found = traces(client, "room.message")
        assert sorted(filter(None, found)) == [SPOKEN, SPOKEN, UNSAMPLED], (
            "a trace is missing; one of the messages was read from the store"
        )
    await bob.hears("signal", kind="wave")
    assert traces(bob, "signal") == [SPOKEN]


async def posted(nodes: list[Process], clients: Clients, app: Receiver) -> None:
    here, there = nodes
    zoe = await clients.join(there, "zoe")
    await until(lambda: len(app.of("room.message")) == 3 + len(MALFORMED))
    await post(here, {"user": "zoe", "kind": "ping", "body": {}}, traceparent=parent(POSTED))
    await zoe.hears("notification.created", seq=1)
    await until(lambda: len(app.of("notification.created")) == 1)
    for header in ("nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"):
        await post(here, {"user": "zoe", "kind": "ping", "body": {}}, traceparent=header)
    await zoe.hears("notification.created", seq=3)
    assert traces(zoe, "notification.created") == [POSTED, None, None]
    await until(lambda: len(app.of("notification.created")) == 3)
    told = [request for request in app.taken if request.events[0]["type"] == "notification.created"]
    assert told[0].headers["traceparent"].split("-")[1] == POSTED
    assert "traceparent" not in told[-1].headers


def are_logged(here: str, there: str) -> None:
    def of(log: str, trace: str) -> set[str]:
        lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
        return {line["event"] for line in lines if line.get("trace") == trace}

    for trace in (SPOKEN, UNSAMPLED):
        assert of(here, trace) == {"command.done", "record.written", "record.received"}
        assert of(there, trace) == {"record.received"}
    assert of(there, POSTED) == {"record.received"}


def are_collected(spans: Iterable[Span]) -> None:
    def tree(trace: str) -> dict[str, set[str]]:
        """Return the names of the spans, each with the names of its parents."""
        mine = [span for span in spans if span.trace_id == trace]
        names = {span.span_id: span.name for span in mine} | {"b7ad6b7169203331": "the caller"}
        found: dict[str, set[str]] = {}
        for span in mine:
            found.setdefault(span.name, set()).add(names[span.parent_id])
        return found

    spoken = tree(SPOKEN)
    spoken.pop("webhook.send", None)  # depends on batching
    assert spoken == {
        "command room.send": {"the caller"},
        "command signal.send": {"the caller"},
        "store.commit": {"command room.send"},
        "bus.publish": {"command room.send"},
        "bus.receive": {"command room.send", "command signal.send"},
    }
    assert tree(POSTED) == {
        "POST /v1/notifications": {"the caller"},
        "store.commit": {"POST /v1/notifications"},
        "bus.publish": {"POST /v1/notifications"},
        "bus.receive": {"bus.publish"},
        "webhook.send": {"POST /v1/notifications"},
    }
    assert {span.trace_id for span in spans} == {SPOKEN, POSTED}, "unsampled traces must not be recorded"
    assert not any(name in str(span) for span in spans for name in ("bob", "vault", "zoe"))
