"""One conversation with each command: all commands and events match the AsyncAPI document."""

from __future__ import annotations

from typing import Any

from e2e.processes import ask as http
from greendot.protocol.commands import COMMANDS
from greendot.protocol.events import EVENTS
from greendot.store.inbox import Notice
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY
from wire_described import heard, said

# Events of large rooms, of a server in trouble or of a drain. Other tests produce and check them.
ELSEWHERE = {"typing.count", "room.count", "room.receipt_count", "refresh", "resync", "drain", "overloaded"}


class Recorder:
    """Recorder of the commands and events of clients, by their names in the document."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def ask(self, client: WireClient, command: str, /, **fields: Any) -> dict[str, Any]:
        """Send a command with an `id` and return its reply."""
        frame = {"type": command, "id": f"{command}-1"} | fields
        said(frame)
        self.names.add(command)
        client.send(**frame)
        while True:
            answer = await client.receive()
            if answer.get("id") == frame["id"]:
                self.names.add(heard(answer, command))
                return answer
            self.names.add(heard(answer))

    async def listen(self, *clients: WireClient) -> None:
        for client in clients:
            self.names |= {heard(frame) for frame in await client.quiet()}


async def test_every_frame_of_a_conversation_matches_the_document() -> None:
    recorder = Recorder()
    async with serving(kinds={"payment": {"promise": "acknowledged"}}) as served:
        await served.lobby()
        ask = recorder.ask
        ann = await served.client("ann", device="laptop", supports={"notification.updated": [1, 2]})
        phone, bob = await served.client("ann", device="phone"), await served.client("bob")
        await before_anything_is_said(served, recorder, ann, bob)
        sent = await ask(bob, "room.send", room="lobby", body={"text": "hi"}, key="k-1")
        seq = sent["data"]["seq"]
        await ask(bob, "room.edit", room="lobby", ref=seq, body=None)
        await ask(ann, "room.react", room="lobby", ref=seq, reaction="👍")
        await ask(ann, "room.join", room="lobby", history=10)
        await ask(ann, "room.react", room="lobby", ref=seq, reaction="👍", on=False)
        await ask(bob, "room.delete", room="lobby", ref=seq)
        for path, body in (
            ("/v1/rooms/lobby", {"receipts": True}),
            ("/v1/users/bob/info", {"info": {"colour": "red"}}),
        ):
            changed = await http(served.port, "PUT", path, body, Authorization=f"Bearer {API_KEY}")
            assert changed.status == 200
        await ask(ann, "room.read", room="lobby", seq=seq)
        await ask(ann, "room.history", room="lobby", limit=10)
        await ask(ann, "room.receipts", room="lobby")
        await ask(ann, "room.receipts", room="lobby", seq=seq)
        await ask(ann, "room.list")
        await ask(bob, "signal.send", kind="wave", user="ann", body=[1], key="w", trace="t-1")
        await recorder.listen(ann, phone, bob)
        await the_inbox(served, recorder, ann, phone)
        await ask(ann, "device.register", provider="webhook", token="a-token")
        await ask(ann, "device.remove")
        await ask(ann, "device.key")
        await ask(ann, "token.refresh", token=served.token("ann"))
        await ask(bob, "typing.stop", room="lobby")
        await ask(bob, "room.leave", room="lobby")
        refused = await ask(bob, "room.join", room="nowhere")
        assert (refused["type"], refused["code"]) == ("error", "not_a_member")
        await recorder.listen(ann, phone, bob)
        await ask(ann, "unwatch", users=["bob"])
        bob.send(type="bye")
        assert (await bob.closed()).code == 1000
    recorder.names |= {"hello", "heartbeat", "bye", "welcome", "heartbeat.ack"}  # sent by `client` and `quiet`
    assert COMMANDS.keys() - recorder.names == set()
    assert EVENTS.keys() - recorder.names == ELSEWHERE
    assert "notification.updated.v2" in recorder.names


async def before_anything_is_said(served: Served, recorder: Recorder, ann: WireClient, bob: WireClient) -> None:
    ask = recorder.ask
    await ask(ann, "watch", users=["bob", "nobody"])
    await ask(ann, "presence.get", users=["ann"])
    await ask(bob, "status.set", status="busy", until=served.clock.now_ms() + 60_000, text="lunch")
    await ask(bob, "privacy.set", last_seen="hidden", hide_from=["carol"])
    await ask(ann, "activity")
    await ask(ann, "room.join", room="lobby")
    await ask(bob, "room.join", room="lobby", after=0)
    await ask(bob, "typing.start", room="lobby")
    await ask(ann, "room.present", room="lobby")


async def the_inbox(served: Served, recorder: Recorder, ann: WireClient, phone: WireClient) -> None:
    notices = [Notice("default", "ann", kind, b'{"order": 17}', f"k-{kind}", 0) for kind in ("news", "payment")]
    await served.node.inbox_service.notify(notices)
    listed = await recorder.ask(ann, "inbox.list", filter="unread")
    ids = [entry["id"] for entry in listed["data"]["notifications"]]
    await recorder.ask(phone, "inbox.seen", ids=ids[:1])
    await recorder.ask(phone, "inbox.read", through=1)
    await recorder.ask(ann, "inbox.ack", ids=ids)
    await recorder.ask(ann, "inbox.archive", ids=ids)
    for frames in await served.advance(2, alive=[ann, phone]):
        recorder.names |= {heard(frame) for frame in frames}
