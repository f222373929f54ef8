"""Check that two nodes still work after a failure."""

from __future__ import annotations

from cluster.nodes import Clients, Listener
from e2e.processes import Process


async def states(node: Process, users: list[str]) -> dict[str, str]:
    reply = await node.ask("POST", "/v1/presence/query", {"users": users})
    return {entry["user"]: entry["state"] for entry in reply.json().get("presence", [])}


async def everything_works(
    nodes: list[Process], clients: Clients, watchers: list[Listener], word: str = "late"
) -> None:
    """Check watches, typing and messages in both directions between the nodes."""
    room = f"room-{word}"
    assert (await nodes[0].ask("PUT", f"/v1/rooms/{room}", {"open": True})).status < 300
    for watcher in watchers:
        await watcher.request(type="room.join", room=room)
    for number, node in enumerate(nodes):
        late = await clients.join(node, f"{word}{number}")
        await late.request(type="room.join", room=room)
        for watcher in watchers:
            assert (await watcher.watch(f"{word}{number}"))[f"{word}{number}"]["state"] == "online"
        late.send(type="typing.start", room=room)
        await late.request(type="room.send", room=room, body={"text": f"from {number}"})
        await late.request(type="status.set", status="busy")
        for watcher in watchers:
            await watcher.hears("typing.started", user=f"{word}{number}")
            await watcher.hears("room.message", user=f"{word}{number}")
            await watcher.sees(f"{word}{number}", "busy")


def assert_versions_rise(watcher: Listener) -> None:
    newest: dict[str, int] = {}
    for told in watcher.changes():
        assert told.data["version"] > newest.get(told.data["user"], 0), told
        newest[told.data["user"]] = told.data["version"]
