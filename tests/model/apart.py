"""Random sequences of several tenants with equal names, run together and for each tenant alone.

All events and replies of a tenant are recorded step by step. The record of a tenant alone on a server must equal the
record beside others: then no event, count or error depends on other tenants.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from e2e.processes import Answer, ask
from greendot.auth.model import hash_of, text_of
from greendot.ids import new_key_id, new_key_secret
from greendot.store.api_keys import ApiKey, Secret
from greendot.testing import Closed, Served, WireClient

WORDS = ["amber", "cobalt", "violet"]  # a secret word of each tenant, in all its messages and display names
SLOTS = 3  # connections of a tenant: two devices of its first user and one of its second
CLOSED, OPEN, LATER = range(3)  # rooms of a tenant: for members, for all, and one that may be created later
_MADE = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Za-z]{4}-[0-9A-Za-z]{9}|[0-9a-f]{24})(?![0-9A-Za-z])")
_NODE = re.compile(r'"node":"[0-9A-Za-z]{4}"')


class Names(NamedTuple):
    """Ids of a sequence, which all its tenants use."""

    tenants: tuple[str, ...]
    users: tuple[str, str]
    rooms: tuple[str, str, str]
    device: str
    key: str


class Step(NamedTuple):
    """One action of a tenant: the actor, the action, and numbers for its choices."""

    tenant: int
    verb: str
    slot: int
    some: int
    wait_s: float


class Story:
    """Server with some of the tenants."""

    def __init__(self, served: Served, names: Names, tenants: Iterable[int]) -> None:
        self.served = served
        self.names = names
        self.tenants = [*tenants]
        self.keys: dict[int, str] = {}
        self.spare_keys: dict[int, str] = {}
        self.clients: dict[tuple[int, int], WireClient] = {}
        self.sessions: dict[tuple[int, int], str] = {}  # the last session of each slot
        self.first: dict[tuple[int, int], str] = {}
        self.revoked = dict.fromkeys(self.tenants, 0)  # number of tokens revoked by `jti`
        self.written: dict[int, list[str]] = {tenant: [] for tenant in self.tenants}
        self._known: dict[int, dict[str, str]] = {tenant: {} for tenant in self.tenants}

    async def begin(self) -> None:
        store = self.served.node.store
        for tenant in self.tenants:
            name = self.names.tenants[tenant]
            self.keys[tenant], self.spare_keys[tenant] = (
                await self._key(name, "backend"),
                await self._key(name, "spare"),
            )
            await store.put_room(name, self.names.rooms[CLOSED])
            await store.put_room(name, self.names.rooms[OPEN], open=True, receipts=True)
            for user in self.names.users:
                await store.put_member(name, self.names.rooms[CLOSED], user)
            for slot in range(SLOTS):
                await self.connect(tenant, slot)
                client = self.clients[tenant, slot]
                await client.request(type="watch", users=[*self.names.users])
                for room in (CLOSED, OPEN):
                    await client.request(type="room.join", room=self.names.rooms[room])
        self.first.update(self.sessions)
        for tenant in self.tenants:
            await self._note(tenant, None, [])

    async def _key(self, tenant: str, name: str) -> str:
        id, secret, now = new_key_id(), new_key_secret(), self.served.clock.now_ms()
        kept = Secret(id, hash_of(secret), now, None, now)
        assert await self.served.node.store.create_key(ApiKey(tenant, name, ("admin",), now), kept)
        return text_of(id, secret)

    async def tell(self, step: Step) -> None:
        """Advance the clock for all clients, and run the step if its tenant is on this server."""
        received = await self.served.advance(step.wait_s, alive=self.clients.values())
        heard = [*zip(self.clients, received, strict=True)]
        answer = await VERBS[step.verb](self, step) if step.tenant in self.tenants else None
        await self.served.settle()
        for tenant in self.tenants:
            said = answer if tenant == step.tenant else None
            await self._note(tenant, said, heard)

    async def _note(self, tenant: int, answer: Any, heard: list[tuple[tuple[int, int], Any]]) -> None:
        """Record the reply and the received events, with random ids replaced by their order of appearance."""
        told = {f"{at[1]} before": frames for at, frames in heard if at[0] == tenant}
        for at in [at for at in self.clients if at[0] == tenant]:
            told[f"{at[1]}"] = await self._quiet(at)
        text = msgspec.json.encode([answer, told]).decode()
        known = self._known[tenant]
        text = _MADE.sub(lambda found: known.setdefault(found[0], f"#{len(known)}"), text)
        self.written[tenant].append(_NODE.sub('"node":"here"', text))

    async def _quiet(self, at: tuple[int, int]) -> list[Any]:
        try:
            return await self.clients[at].quiet()
        except Closed as closed:
            del self.clients[at]
            return ["closed", closed.code, closed.reason]

    # --- users and rooms ---

    def user(self, slot: int) -> str:
        return self.names.users[slot // 2]

    def token(self, tenant: int, slot: int, **claims: Any) -> str:
        user = self.user(slot)
        claims = {"name": f"{WORDS[tenant]} {user[:9]}", "jti": self.jti(tenant)} | claims
        return self.make_token(user, tenant=self.names.tenants[tenant], **claims)

    def make_token(self, user: str, **claims: Any) -> str:
        return self.served.token(user, **claims)

    def jti(self, tenant: int) -> str:
        return f"{self.names.key}{self.revoked[tenant]}"

    def foreign(self, step: Step) -> str:
        """Return a session of another tenant, or a session that never existed if there is no other."""
        at = (step.tenant + 1) % len(self.names.tenants), step.some % SLOTS
        return self.first.get(at) or f"{self.served.node.incarnation}-00000000{at[1]}"

    # --- WebSocket ---

    async def connect(self, tenant: int, slot: int, **hello: Any) -> Any:
        if (tenant, slot) in self.clients:
            return None
        client = await self.socket(slot)
        device = self.names.device if slot % 2 else "phone"
        client.send(type="hello", token=self.token(tenant, slot), device=device, **hello)
        try:
            welcome = await client.receive()
        except Closed as closed:
            return ["closed", closed.code, closed.reason]
        if welcome["type"] == "welcome":
            self.clients[tenant, slot] = client
            self.sessions[tenant, slot] = welcome["data"]["session"]
        return welcome

    async def socket(self, slot: int) -> WireClient:
        return await self.served.socket()

    async def command(self, step: Step, **command: Any) -> Any:
        """Send a command, after connecting if necessary, and return its reply or error."""
        welcome = await self.connect(step.tenant, step.slot)
        client = self.clients.get((step.tenant, step.slot))
        if client is None:
            return welcome
        client.send(**command, id="asked")
        frames = [welcome]
        try:
            while (frame := await client.receive()).get("id") != "asked":
                frames.append(frame)
        except Closed as closed:
            del self.clients[step.tenant, step.slot]
            return [*frames, "closed", closed.code]
        return [*frames, frame]

    async def leave(self, step: Step, *, bye: bool) -> None:
        client = self.clients.pop((step.tenant, step.slot), None)
        if client is None:
            return
        if bye:
            client.send(type="bye")
            await client.closed()
        else:
            await client.end()
        await self.gone()

    async def gone(self) -> None:
        """Wait until the server has noticed all disconnects."""
        await self.served.until_gone(len(self.clients))

    # --- HTTP ---

    async def call(self, step: Step, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        answer = await self.answer(key or self.keys[step.tenant], method, path, body)
        return [answer.status, answer.headers.get("retry-after"), msgspec.json.decode(answer.body or b"null")]

    async def answer(self, key: str, method: str, path: str, body: Any = None) -> Answer:
        return await ask(self.served.port, method, path, body, Authorization=f"Bearer {key}")


Verb = Callable[[Story, Step], Awaitable[Any]]


def _body(step: Step) -> dict[str, Any]:
    return {"secret": WORDS[step.tenant], "n": step.some}


def _ws(type: str, **fields: Callable[[Story, Step], Any]) -> Verb:
    async def verb(story: Story, step: Step) -> Any:
        made = {name.rstrip("_"): field(story, step) for name, field in fields.items()}
        return await story.command(step, type=type, **made)

    return verb


def _http(method: str, path: str, body: Callable[[Story, Step], Any] | None = None) -> Verb:
    async def verb(story: Story, step: Step) -> Any:
        filled = path.format(
            user=quote(_user(story, step), safe=""),
            other=quote(_other(story, step), safe=""),
            room=quote(_room(story, step), safe=""),
            session=story.sessions.get((step.tenant, step.slot), "none"),
            foreign=story.foreign(step),
        )
        return await story.call(step, method, filled, body and body(story, step))

    return verb


def _user(story: Story, step: Step) -> str:
    return story.names.users[step.some % 2]


def _other(story: Story, step: Step) -> str:
    return story.names.users[1 - step.some % 2]


def _users(story: Story, step: Step) -> list[str]:
    return [*story.names.users, "nobody"][: 1 + step.some % 3]


def _room(story: Story, step: Step) -> str:
    return story.names.rooms[(CLOSED, CLOSED, OPEN, OPEN, OPEN, LATER)[step.some // 2]]


def _key(story: Story, step: Step) -> str:
    return story.names.key


def _number(story: Story, step: Step) -> int:
    return 1 + step.some % 3


def _said(story: Story, step: Step) -> dict[str, Any]:
    return _body(step)


async def _resume(story: Story, step: Step) -> Any:
    session = story.sessions.get((step.tenant, step.slot), "none")
    rooms = dict.fromkeys(story.names.rooms, step.some % 3)
    return await story.connect(step.tenant, step.slot, resume={"session": session, "rooms": rooms, "inbox": 0})


async def _steal(story: Story, step: Step) -> Any:
    await story.leave(step, bye=True)
    return await story.connect(step.tenant, step.slot, resume={"session": story.foreign(step), "rooms": {}, "inbox": 0})


async def _refresh(story: Story, step: Step) -> Any:
    narrower = [{"watch": []}, {"send": False}, {"rooms": [story.names.rooms[LATER]]}, {}, {}, {}][step.some // 2]
    return await story.command(step, type="token.refresh", token=story.token(step.tenant, step.slot, **narrower))


async def _revoke_token(story: Story, step: Step) -> Any:
    revoked = await story.call(step, "POST", "/v1/tokens/revoke", {"jti": story.jti(step.tenant)})
    story.revoked[step.tenant] += 1
    return revoked


async def _spare_key(story: Story, step: Step) -> Any:
    return await story.call(step, "GET", "/v1/stats", key=story.spare_keys[step.tenant])


async def _remove_key(story: Story, step: Step) -> Any:
    return await story.served.node.store.remove_key(story.names.tenants[step.tenant], "spare")


async def _rewatch(story: Story, step: Step) -> Any:
    await story.command(step, type="unwatch", users=[*story.names.users])
    return await story.command(step, type="watch", users=_users(story, step))


VERBS: dict[str, Verb] = {
    "connect": lambda story, step: story.connect(step.tenant, step.slot),
    "resume": _resume,
    "resume another's": _steal,
    "bye": lambda story, step: story.leave(step, bye=True),
    "drop": lambda story, step: story.leave(step, bye=False),
    "refresh": _refresh,
    "watch": _rewatch,
    "query": _ws("presence.get", users=_users),
    "busy": _ws("status.set", status=lambda *_: "busy", text=lambda story, step: WORDS[step.tenant]),
    "unseen": _ws("status.set", status=lambda *_: "invisible"),
    "seen": _ws("status.set", status=lambda *_: "auto"),
    "hide": _ws("privacy.set", hide_from=lambda story, step: [_user(story, step)], last_seen=lambda *_: "hidden"),
    "show": _ws("privacy.set", hide_from=lambda *_: [], last_seen=lambda *_: "shown"),
    "type": _ws("typing.start", room=_room),
    "type no more": _ws("typing.stop", room=_room),
    "rooms": _ws("room.list"),
    "join": _ws("room.join", room=_room, after=_number),
    "leave": _ws("room.leave", room=_room),
    "present": _ws("room.present", room=_room),
    "send": _ws("room.send", room=_room, body=_said),
    "send once": _ws("room.send", room=_room, body=_said, key=_key),
    "edit": _ws("room.edit", room=_room, ref=_number, body=_said),
    "delete": _ws("room.delete", room=_room, ref=_number),
    "react": _ws("room.react", room=_room, ref=_number, reaction=lambda *_: "+"),
    "unreact": _ws("room.react", room=_room, ref=_number, reaction=lambda *_: "+", on=lambda *_: False),
    "read": _ws("room.read", room=_room, seq=_number),
    "receipts": _ws("room.receipts", room=_room),
    "readers": _ws("room.receipts", room=_room, seq=_number),
    "history": _ws("room.history", room=_room),
    "inbox": _ws("inbox.list"),
    "inbox read": _ws("inbox.read", through=_number),
    "inbox archive": _ws("inbox.archive", through=_number),
    "signal room": _ws("signal.send", room=_room, kind=_key, body=_said),
    "signal user": _ws("signal.send", user=_user, kind=_key, body=_said, key=_key),
    "ask presence": _http("POST", "/v1/presence/query", lambda story, step: {"users": _users(story, step)}),
    "ask online": _http("GET", "/v1/presence/online?limit=1"),
    "ask user": _http("GET", "/v1/users/{user}/presence"),
    "ask sessions": _http("GET", "/v1/users/{user}/sessions"),
    "ask inbox": _http("GET", "/v1/users/{user}/inbox"),
    "put status": _http("PUT", "/v1/users/{user}/status", lambda story, step: {"text": WORDS[step.tenant]}),
    "put contact": _http("PUT", "/v1/users/{user}/contacts/{other}"),
    "cut contact": _http("DELETE", "/v1/users/{user}/contacts/{other}"),
    "ask rooms": _http("GET", "/v1/rooms"),
    "put room": _http("PUT", "/v1/rooms/{room}", lambda story, step: {"open": step.some % 4 > 1}),
    "ask room": _http("GET", "/v1/rooms/{room}"),
    "ask members": _http("GET", "/v1/rooms/{room}/members"),
    "put member": _http("PUT", "/v1/rooms/{room}/members/{user}"),
    "cut member": _http("DELETE", "/v1/rooms/{room}/members/{user}"),
    "ask present": _http("GET", "/v1/rooms/{room}/present"),
    "ask typing": _http("GET", "/v1/rooms/{room}/typing"),
    "ask messages": _http("GET", "/v1/rooms/{room}/messages"),
    "put reaction": _http("PUT", "/v1/rooms/{room}/messages/1/reactions/x?user={user}"),
    "cut reaction": _http("DELETE", "/v1/rooms/{room}/messages/1/reactions/x?user={user}"),
    "post message": _http(
        "POST",
        "/v1/rooms/{room}/messages",
        lambda story, step: {"user": _user(story, step), "body": _body(step), "key": story.names.key},
    ),
    "notify": _http(
        "POST",
        "/v1/notifications",
        lambda story, step: (
            {"user": _user(story, step), "kind": "k", "body": _body(step)}
            | ({"key": story.names.key} if step.some % 4 > 1 else {})
        ),
    ),
    "post signal": _http(
        "POST",
        "/v1/signals",
        lambda story, step: {"user": _user(story, step), "kind": story.names.key, "body": _body(step)},
    ),
    "end session": _http("DELETE", "/v1/sessions/{session}"),
    "end another's": _http("DELETE", "/v1/sessions/{foreign}"),
    "revoke user": _http("POST", "/v1/tokens/revoke", lambda story, step: {"user": _user(story, step)}),
    "revoke token": _revoke_token,
    "revoke another's": _http("POST", "/v1/tokens/revoke", lambda story, step: {"session": story.foreign(step)}),
    "spare key": _spare_key,
    "remove key": _remove_key,
    "stats": _http("GET", "/v1/stats"),
    "nodes": _http("GET", "/v1/nodes"),
}
