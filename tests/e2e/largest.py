"""Each command and each HTTP route at its largest allowed size, with measured loop turns of the server."""

from __future__ import annotations

import asyncio
import http.client
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import islice, product
from typing import Any, NamedTuple

import msgspec

from e2e.collected import collected_as_served
from greendot.auth.tenants import MOST_LABELS
from greendot.connect.http import MOST_COMMANDS
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.testing import Served, WireClient, serving
from greendot.testing.event_stream import EventStreamClient
from greendot.testing.server import API_KEY
from greendot.testing.turns import Aside, Turns, turns
from greendot.transport.event_stream_model import MAX_PADDING

FRAME = 64 * 1024
T = "default"
NAMES = ["".join(name) for name in islice(product(string.ascii_lowercase + string.digits, repeat=3), 10_000)]
BODY = "x" * (FRAME - 512)


async def together(work: Iterable[Awaitable[Any]]) -> None:
    """Await all of the work, in groups of 500."""
    waiting = iter(work)
    while some := [*islice(waiting, 500)]:
        await asyncio.gather(*some)


class World:
    """Server with clients. Clients run in another thread, so that only the server's work is measured."""

    def __init__(self, served: Served, aside: Aside, measured: Turns) -> None:
        self.served = served
        self.aside = aside
        self.turns = measured
        self.longest_s = 0.0
        self._clients: list[WireClient] = []

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Measure the loop turns of this block and of the work it starts."""
        await self.served.settle()
        await asyncio.sleep(0)
        self.turns.restart()
        yield
        await self.served.settle()
        await asyncio.sleep(0)
        self.longest_s = max(self.longest_s, self.turns.longest_s)

    async def client(self, user: str = "viewer", *, claims: dict[str, Any] | None = None, **hello: Any) -> WireClient:
        token = self.served.token(user, **(claims or {}))
        return await self.aside.run(self._client(token, hello))

    async def close(self) -> None:
        for client in self._clients:
            await self.aside.run(client.end())

    async def _client(self, token: str, hello: dict[str, Any]) -> WireClient:
        client = await WireClient.connect(self.served.port)
        self._clients.append(client)
        await client.hello(token, **hello)
        return client

    async def stream(self, user: str) -> EventStreamClient:
        """Open an event stream with the largest padding, and send hello."""
        token = self.served.token(user)

        async def opened() -> EventStreamClient:
            client = await EventStreamClient.connect(self.served.port, f"/v1/events?pad={MAX_PADDING}")
            self._clients.append(client)
            await client.hello(token)
            return client

        return await self.aside.run(opened())

    async def ask(self, client: WireClient, **command: Any) -> dict[str, Any]:
        """Send a command, measure it and return its reply."""
        async with self.measuring():
            return await self.aside.run(client.request(**command))

    async def http(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, measure it and return the JSON of the response."""
        async with self.measuring():
            return await asyncio.to_thread(self._http, method, path, body)

    def _http(self, method: str, path: str, body: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=20)
        try:
            data = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, data, {"Authorization": f"Bearer {API_KEY}"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 400 or answer.status in (403, 426), (answer.status, text[:300])
            return msgspec.json.decode(text) if text.startswith((b"{", b"[")) else text
        finally:
            connection.close()

    # --- largest data of each type ---

    async def fill_room(self, room: str = "hall", messages: int = 0) -> None:
        """Make an open room with this many messages of the largest size."""
        store = self.served.node.store
        await store.put_room(T, room, open=True)
        body = msgspec.json.encode(BODY)
        for number in range(messages):
            await store.append(T, room, Draft("viewer", None, body, f"k{number}", 1))

    async def enter(self, room: str, count: int) -> None:
        """Register `count` users in the room with the engine."""
        engine, node = self.served.node.engine, self.served.node.incarnation
        await together(engine.enter(T, room, name, SessionEpoch(f"{node}.{name}", node, 1)) for name in NAMES[:count])

    async def be_online(self, users: list[str]) -> None:
        """Register these users as online with the engine."""
        engine, node = self.served.node.engine, self.served.node.incarnation

        async def one(user: str) -> None:
            await engine.touch(T, user, SessionEpoch(f"{node}-{user}", node, 1), "phone", False, None)
            await engine.set_status(T, user, ManualStatus())

        await together(one(user) for user in users)

    async def crowd(self, room: str, count: int) -> None:
        """Connect `count` clients that join the room."""
        tokens = [self.served.token(f"l{number}") for number in range(count)]

        async def joined(token: str) -> None:
            client = await self._client(token, {})
            await client.request(type="room.join", room=room)

        async def some(at: int) -> None:
            await asyncio.gather(*(joined(token) for token in tokens[at : at + 50]))

        for at in range(0, count, 50):
            await self.aside.run(some(at))

    async def fill_inbox(self, user: str, count: int, body: bytes = b'"x"') -> None:
        notices = [Notice(T, user, "note", body, f"k{number}", 1, None) for number in range(count)]
        for at in range(0, count, 1_000):
            await self.served.node.store.notify(notices[at : at + 1_000])


class Case(NamedTuple):
    """Commands or routes at their largest size."""

    run: Callable[[World], Awaitable[None]]
    of: tuple[str, ...]  # names of the commands and routes
    settings: dict[str, Any]  # of the server, by section


CASES: dict[str, Case] = {}


def case(*of: str, **settings: Any) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    def marked(run: Callable[[World], Awaitable[None]]) -> None:
        CASES[run.__name__] = Case(run, of, settings)

    return marked


async def longest_turn(case: Case, **settings: Any) -> float:
    """Run a case on its own server and return its longest turn, in seconds of processor time."""
    settings = {"limits": {"enabled": False}} | case.settings | settings
    async with serving(**settings) as served, Aside() as aside, turns() as measured:
        world = World(served, aside, measured)
        try:
            with collected_as_served(served.node):
                await case.run(world)
        finally:
            await world.close()
        return world.longest_s


# --- commands ---


@case("hello")
async def hello_with_every_room_and_a_long_inbox(world: World) -> None:
    rooms = [f"room{number:03}" for number in range(500)]
    await together(world.fill_room(room) for room in rooms)
    for number in range(60):  # a resend is limited to 4 MiB for all rooms together
        await world.served.node.store.append(T, rooms[number], Draft("bob", None, msgspec.json.encode(BODY), "k", 1))
    await world.fill_inbox("viewer", 300, b'"%b"' % (b"x" * 3_000))
    supports = {f"type{number}": list(range(1, 33)) for number in range(199)}
    async with world.measuring():
        await world.client(resume={"rooms": dict.fromkeys(rooms, 0), "inbox": 0}, supports=supports)


@case("heartbeat", "activity")
async def signs_of_life(world: World) -> None:
    client = await world.client()
    await world.ask(client, type="activity")
    async with world.measuring():
        await world.aside.run(client.quiet())


@case("status.set")
async def status_of_somebody_in_every_room(world: World) -> None:
    client = await world.client()
    for number in range(50):
        await world.fill_room(f"room{number:03}")
        await world.aside.run(client.request(type="room.join", room=f"room{number:03}"))
    for status in ("busy", "invisible", "auto"):
        await world.ask(client, type="status.set", status=status, text="x" * 200)


@case("privacy.set")
async def privacy_of_somebody_who_watches_10_000(world: World) -> None:
    client = await world.client()
    await world.aside.run(client.request(type="watch", users=NAMES))
    await world.ask(client, type="privacy.set", last_seen="hidden", hide_from=NAMES[:1_000])
    await world.ask(client, type="privacy.set", hide_from=[])


@case("watch", "unwatch")
async def watch_of_10_000(world: World) -> None:
    client = await world.client()
    assert len((await world.ask(client, type="watch", users=NAMES))["presence"]) == 10_000
    await world.ask(client, type="watch", users=NAMES)
    await world.ask(client, type="unwatch", users=NAMES)


@case("watch")
async def watch_by_ten_at_once(world: World) -> None:
    clients = [await world.client(f"w{number}") for number in range(10)]

    async def all_at_once() -> None:
        await asyncio.gather(*(client.request(type="watch", users=NAMES[:5_400]) for client in clients))

    async with world.measuring():
        await world.aside.run(all_at_once())


@case("watch", "presence.get")
async def watch_where_people_hide(world: World) -> None:
    for name in NAMES[:50]:
        await world.served.node.store.put_privacy(T, name, last_seen="hidden", hide_from=frozenset({"viewer"}))
    client = await world.client()
    await world.ask(client, type="watch", users=NAMES)
    await world.ask(client, type="presence.get", users=NAMES)


@case("presence.get")
async def presence_of_10_000(world: World) -> None:
    client = await world.client()
    assert len((await world.ask(client, type="presence.get", users=NAMES))["presence"]) == 10_000


@case("watch", "presence.get")
async def watch_with_100_patterns(world: World) -> None:
    client = await world.client(claims={"watch": [f"*{name}*x*" for name in NAMES[:99]] + ["*a*"]})
    await world.ask(client, type="watch", users=NAMES)
    await world.ask(client, type="presence.get", users=NAMES)


@case("bye", "watch")
async def goodbye_of_one_who_watches_10_000(world: World) -> None:
    client = await world.client()
    await world.aside.run(client.request(type="watch", users=NAMES))
    async with world.measuring():
        client_closed = world.aside.run(_bye(client))
        await client_closed
        await world.served.until_gone()


async def _bye(client: WireClient) -> None:
    client.send(type="bye")
    await client.closed()


@case("typing.start", "typing.stop", "room.present", "room.join", "room.leave")
async def a_room_of_10_000(world: World) -> None:
    await world.fill_room()
    await world.enter("hall", 10_000)
    client = await world.client()
    await world.ask(client, type="room.join", room="hall")
    page = await world.ask(client, type="room.present", room="hall", limit=300)
    assert (len(page["users"]), page["count"]) == (300, 10_001)
    await world.ask(client, type="typing.start", room="hall")
    await world.ask(client, type="typing.stop", room="hall")
    await world.ask(client, type="room.leave", room="hall")


@case("room.present", "room.join", "privacy.set")
async def a_room_of_10_000_where_people_hide(world: World) -> None:
    await world.served.node.store.put_privacy(T, NAMES[5], hide_from=frozenset({"viewer"}))
    await world.fill_room()
    await world.enter("hall", 10_000)
    client = await world.client()
    await world.ask(client, type="room.join", room="hall")
    page = await world.ask(client, type="room.present", room="hall", limit=300)
    assert page["count"] == 10_000
    await world.ask(client, type="privacy.set", hide_from=NAMES[:1_000])


@case("room.join")
async def a_room_where_1_000_type(world: World) -> None:
    await world.fill_room()
    for name in NAMES[:1_000]:
        world.served.node.engine.typing_start(T, "hall", name, None)
    client = await world.client()
    await world.ask(client, type="room.join", room="hall")


@case("room.list")
async def a_list_of_10_000_rooms(world: World) -> None:
    await together(world.served.node.store.put_room(T, name, open=True) for name in NAMES)
    client = await world.client()
    assert len((await world.ask(client, type="room.list"))["rooms"]) == 10_000


@case("room.history", "room.join", "room.read")
async def a_page_of_large_messages(world: World) -> None:
    await world.fill_room(messages=70)
    client = await world.client()
    await world.ask(client, type="room.join", room="hall", after=0)
    assert len((await world.ask(client, type="room.join", room="hall", history=100))["messages"]) >= 16
    page = await world.ask(client, type="room.history", room="hall", limit=300)
    assert len(page["messages"]) >= 16
    await world.ask(client, type="room.read", room="hall", seq=70)


@case("room.receipts", "room.read", "GET /v1/rooms/{room}/receipts")
async def receipts_of_10_000_readers(world: World) -> None:
    await world.fill_room(messages=1)
    store = world.served.node.store
    await store.put_room(T, "hall", receipts=True)
    await together(store.put_marker(T, "hall", name, 1, 1) for name in NAMES)
    client = await world.client()
    # Without members and occupants the room is not large: all receipts are read and decided.
    page = await world.ask(client, type="room.receipts", room="hall", limit=300)
    assert (len(page["receipts"]), page["count"]) == (300, 10_000)
    await world.enter("hall", 10_000)
    assert (await world.ask(client, type="room.receipts", room="hall", seq=1))["count"] == 10_000
    await world.ask(client, type="room.read", room="hall", seq=1)
    assert len((await world.http("GET", "/v1/rooms/hall/receipts?limit=1000"))["receipts"]) == 1_000
    assert (await world.http("GET", "/v1/rooms/hall/receipts?seq=1"))["count"] == 10_001


@case(
    "room.react",
    "room.history",
    "room.join",
    "PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}",
    "DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}",
)
async def a_page_of_messages_with_many_reactions(world: World) -> None:
    store = world.served.node.store
    await store.put_room(T, "hall", open=True)
    await together(store.append(T, "hall", Draft("a", None, b"1", f"k{number}", 0)) for number in range(300))
    marks = [f"{number:032}" for number in range(20)]
    await together(
        store.append(T, "hall", Draft("a", None, b"1", f"{ref}-{mark}", 0, ref, "react", reaction=mark))
        for ref in range(1, 301)
        for mark in marks
    )
    client = await world.client()
    await world.aside.run(client.request(type="room.join", room="hall"))
    await world.ask(client, type="room.react", room="hall", ref=1, reaction=marks[0])
    page = await world.ask(client, type="room.history", room="hall", after=0, limit=300)
    assert sum(len(message["reactions"]) for message in page["messages"]) == 6_000
    await world.ask(client, type="room.join", room="hall", history=100)
    for method in ("PUT", "DELETE"):
        await world.http(method, f"/v1/rooms/hall/messages/1/reactions/{marks[1]}?user=b")


@case(
    "GET /v1/rooms/{room}/mutes",
    "PUT /v1/rooms/{room}/mutes/{user}",
    "DELETE /v1/rooms/{room}/mutes/{user}",
    "GET /v1/rooms/{room}/bans",
    "PUT /v1/rooms/{room}/bans/{user}",
    "DELETE /v1/rooms/{room}/bans/{user}",
    "GET /v1/mutes",
    "PUT /v1/mutes/{user}",
    "DELETE /v1/mutes/{user}",
    "GET /v1/bans",
    "PUT /v1/bans/{user}",
    "DELETE /v1/bans/{user}",
)
async def restrictions_of_many_users(world: World) -> None:
    await world.http("PUT", "/v1/rooms/hall", {"open": True})
    for place in ("rooms/hall/mutes", "rooms/hall/bans", "mutes", "bans"):
        for number in range(100):
            await world.http("PUT", f"/v1/{place}/user{number}", {"reason": "r" * 200})
        assert len((await world.http("GET", f"/v1/{place}?limit=100"))["users"]) == 100
        await world.http("DELETE", f"/v1/{place}/user0")


@case(
    "PATCH /v1/rooms/{room}/messages/{seq}",
    "DELETE /v1/rooms/{room}/messages/{seq}",
    "DELETE /v1/rooms/{room}",
    "GET /v1/audit",
)
async def moderation_of_a_room_with_many_listeners(world: World) -> None:
    await world.fill_room(messages=1)
    await together(
        world.served.node.store.append(
            T, "hall", Draft("a", None, msgspec.json.encode(BODY), f"e{number}", 0, 1, "edit")
        )
        for number in range(20)
    )
    await world.crowd("hall", 1_000)
    await world.http("PATCH", "/v1/rooms/hall/messages/1", {"body": BODY, "reason": "r" * 200})
    await world.http("DELETE", "/v1/rooms/hall/messages/1?by=mod")
    assert len((await world.http("GET", "/v1/audit?limit=300"))["entries"]) == 2
    await world.http("DELETE", "/v1/rooms/hall")


@case("room.send", "room.edit", "room.delete", "signal.send")
async def messages_of_64_kib_to_many(world: World) -> None:
    await world.fill_room()
    client = await world.client()
    await world.crowd("hall", 1_000)
    await world.aside.run(client.request(type="room.join", room="hall"))
    await world.ask(client, type="room.send", room="hall", body=BODY)
    await world.ask(client, type="room.edit", room="hall", ref=1, body=BODY)
    await world.ask(client, type="room.delete", room="hall", ref=1)
    await world.ask(client, type="signal.send", room="hall", kind="k", body=BODY)


@case("inbox.list", "inbox.seen", "inbox.read", "inbox.archive", "inbox.ack")
async def an_inbox_of_5_000(world: World) -> None:
    await world.fill_inbox("viewer", 5_000, b'"%b"' % (b"x" * 3_400))
    client = await world.client()
    page = await world.ask(client, type="inbox.list", limit=300)
    assert len(page["notifications"]) == 300
    ids = [f"{'i' * 50}{number}" for number in range(1_000)]
    for mark in ("seen", "read", "ack", "archive"):
        await world.ask(client, type=f"inbox.{mark}", ids=ids)
        await world.ask(client, type=f"inbox.{mark}", through=5_000)


@case("device.register", "device.remove", "device.key")
async def a_device_with_a_long_token(world: World) -> None:
    client = await world.client()
    await world.ask(client, type="device.register", provider="fcm", token="x" * 4_000)
    await world.ask(client, type="device.key")
    await world.ask(client, type="device.remove")


@case("token.refresh")
async def a_token_that_ends_10_000_watches(world: World) -> None:
    client = await world.client()
    await world.aside.run(client.request(type="watch", users=NAMES))
    patterns = [f"{name}*z" for name in NAMES[:100]]
    await world.ask(client, type="token.refresh", token=world.served.token("viewer", watch=patterns))


@case("watch", "presence.get", "privacy.set", visibility={"policy": "contacts"})
async def contacts_of_10_000(world: World) -> None:
    store = world.served.node.store
    await together(store.put_contact(T, "viewer", name, 1, most=20_000) for name in NAMES[:1_000])
    await together(store.put_contact(T, name, "viewer", 1, most=20_000) for name in NAMES)
    client = await world.client()
    await world.ask(client, type="watch", users=NAMES)
    await world.ask(client, type="presence.get", users=NAMES)
    await world.ask(client, type="privacy.set", hide_from=NAMES[:1_000])
    await world.http("DELETE", f"/v1/users/viewer/contacts/{NAMES[0]}")
    await world.http("PUT", f"/v1/users/viewer/contacts/{NAMES[0]}", {})


# --- routes ---


@case("POST /v1/presence/query")
async def query_of_10_000(world: World) -> None:
    users = [f"{'u' * 123}{number:05}" for number in range(10_000)]
    assert len((await world.http("POST", "/v1/presence/query", {"users": users}))["presence"]) == 10_000


@case("GET /v1/presence/online")
async def a_page_of_10_000_online(world: World) -> None:
    await world.be_online(NAMES)
    page = await world.http("GET", "/v1/presence/online?limit=1000")
    assert (len(page["users"]), page["count"]) == (1_000, 10_000)
    await world.http("GET", f"/v1/presence/online?limit=1000&after={page['next']}")


@case("POST /v1/notifications")
async def notifications_for_10_000(world: World) -> None:
    many = [{"user": name, "kind": "note", "body": "x" * 1_500} for name in NAMES]
    made = await world.http("POST", "/v1/notifications", {"notifications": many})
    assert len(made["notifications"]) == 10_000


@case(
    "GET /v1/users/{user}/presence",
    "GET /v1/users/{user}/presence/mode",
    "PUT /v1/users/{user}/presence/mode",
    "DELETE /v1/users/{user}/presence/mode",
    "GET /v1/users/{user}/sessions",
    "PUT /v1/users/{user}/status",
    "GET /v1/users/{user}/info",
    "PUT /v1/users/{user}/info",
    "DELETE /v1/users/{user}/info",
    "PUT /v1/users/{user}/contacts/{other}",
    "DELETE /v1/users/{user}/contacts/{other}",
    "GET /v1/users/{user}/devices",
    "PUT /v1/users/{user}/devices/{device}",
    "DELETE /v1/users/{user}/devices/{device}",
    "GET /v1/users/{user}/push",
    "PUT /v1/users/{user}/push",
    "GET /v1/push/key",
    "GET /v1/users/{user}/inbox",
    "DELETE /v1/sessions/{session}",
    "POST /v1/tokens/revoke",
)
async def a_user_with_all_there_may_be(world: World) -> None:
    clients = [await world.client(device=f"d{number}") for number in range(100)]
    await world.fill_inbox("viewer", 1_000, b'"%b"' % (b"x" * 3_400))
    session = clients[0].welcome["session"]
    user = "/v1/users/viewer"
    assert len((await world.http("GET", f"{user}/sessions"))["sessions"]) == 100
    await world.http("GET", f"{user}/presence")
    await together(world.served.node.store.put_presence_mode(T, name, "poll", most=9_999) for name in NAMES[:9_999])
    await world.ask(clients[0], type="watch", users=NAMES[:100])
    await world.http("PUT", f"{user}/presence/mode", {"mode": "live"})
    await world.http("GET", f"{user}/presence/mode")
    await world.http("DELETE", f"{user}/presence/mode")
    await world.http("PUT", f"{user}/status", {"status": "busy", "text": "x" * 200})
    await world.http("PUT", f"{user}/info", {"name": "x" * 200, "info": {"text": "x" * 1_000}})
    await world.http("GET", f"{user}/info")
    await world.http("DELETE", f"{user}/info")
    await world.http("PUT", f"{user}/contacts/other", {})
    await world.http("DELETE", f"{user}/contacts/other")
    await world.http("PUT", f"{user}/devices/d1", {"provider": "fcm", "token": "x" * 4_000})
    await world.http("GET", f"{user}/devices")
    await world.http("DELETE", f"{user}/devices/d1")
    await world.http("PUT", f"{user}/push", {"time_zone": "Europe/Berlin"})
    await world.http("GET", f"{user}/push")
    await world.http("GET", "/v1/push/key")
    assert len((await world.http("GET", f"{user}/inbox?limit=300"))["notifications"]) == 300
    await world.http("DELETE", f"/v1/sessions/{session}")
    world.served.clock.advance(1.0)  # the token must be older than this second to be revoked
    assert (await world.http("POST", "/v1/tokens/revoke", {"user": "viewer"}))["closed"] == 99


@case(
    "GET /v1/rooms",
    "GET /v1/rooms/{room}",
    "PUT /v1/rooms/{room}",
    "GET /v1/rooms/{room}/members",
    "PUT /v1/rooms/{room}/members/{user}",
    "DELETE /v1/rooms/{room}/members/{user}",
    "GET /v1/rooms/{room}/present",
    "GET /v1/rooms/{room}/typing",
    "GET /v1/rooms/{room}/messages",
    "POST /v1/rooms/{room}/messages",
    "POST /v1/signals",
)
async def a_room_with_all_there_may_be(world: World) -> None:
    node = world.served.node
    await world.fill_room(messages=40)
    await world.enter("hall", 10_000)
    await together(node.store.put_room(T, name) for name in NAMES[:2_000])
    await together(node.store.put_member(T, "hall", name) for name in NAMES[:2_000])
    for name in NAMES[:1_000]:
        node.engine.typing_start(T, "hall", name, None)
    client = await world.client()
    await world.aside.run(client.request(type="room.join", room="hall"))
    assert len((await world.http("GET", "/v1/rooms?limit=1000"))["rooms"]) == 1_000
    hall = "/v1/rooms/hall"
    await world.http("PUT", hall, {"open": True})
    await world.http("GET", hall)
    assert len((await world.http("GET", f"{hall}/members?limit=1000"))["members"]) == 1_000
    await world.http("PUT", f"{hall}/members/zoe", {})
    await world.http("DELETE", f"{hall}/members/zoe")
    assert len((await world.http("GET", f"{hall}/present?limit=1000"))["users"]) == 1_000
    assert len((await world.http("GET", f"{hall}/typing"))["typing"]) == 1_000
    assert len((await world.http("GET", f"{hall}/messages?limit=300"))["messages"]) >= 16
    await world.http("POST", f"{hall}/messages", {"user": "zoe", "body": BODY})
    await world.http("POST", "/v1/signals", {"room": "hall", "kind": "k", "body": BODY})


@case("GET /v1/events", "POST /v1/events/{stream}")
async def event_stream_with_requests_of_the_largest_size(world: World) -> None:
    await world.fill_room()
    async with world.measuring():
        client = await world.stream("viewer")
    await world.ask(client, type="room.join", room="hall")
    await world.ask(client, type="room.send", room="hall", body=BODY)
    many = [{"type": "room.send", "room": "hall", "body": "x" * 900} for _ in range(MOST_COMMANDS)]
    async with world.measuring():
        client.seq += 1
        assert await world.aside.run(client.post({"seq": client.seq, "commands": many})) == 202


@case("GET /metrics", server={"tenant_metrics": True})
async def metrics_of_as_many_tenants_as_are_shown(world: World) -> None:
    node = world.served.node
    for number in range(MOST_LABELS):
        await node.store.create_tenant(f"tenant{number}", 1)
        node.registry.usage.of(f"tenant{number}").sends = number
    page = await world.http("GET", "/metrics")
    assert page.count(b"\ntenant_sends_total{") == MOST_LABELS


@case(
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/connect",
    "GET /v1/nodes",
    "GET /v1/stats",
    "GET /openapi.json",
    "GET /asyncapi.json",
)
async def what_operators_ask(world: World) -> None:
    client = await world.client()
    await world.aside.run(client.request(type="watch", users=NAMES))
    for path in ("livez", "readyz", "metrics", "v1/connect", "v1/nodes", "v1/stats", "openapi.json", "asyncapi.json"):
        await world.http("GET", f"/{path}")
