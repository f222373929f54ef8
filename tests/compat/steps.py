"""Steps of a protocol recording: each command, and causes for each event."""

from __future__ import annotations

from compat.talk import Step


def hello(name: str, user: str, **fields: object) -> Step:
    return {"hello": name, "user": user, "fields": {"device": name, **fields}}


def say(by: str, type: str, **fields: object) -> Step:
    return {"by": by, "say": {"type": type, **fields}}


def ask(method: str, path: str, body: object = None) -> Step:
    return {"ask": [method, path, body]}


UPDATED = "notification.updated"

STEPS: list[Step] = [
    ask("PUT", "/v1/rooms/hall", {"open": True}),  # 0
    ask("PUT", "/v1/rooms/club", {"open": False}),
    ask("PUT", "/v1/rooms/club/members/ann", {"role": "admin"}),
    ask("PUT", "/v1/rooms/club/members/bob", {"role": "member"}),
    hello("phone", "ann", client={"name": "recorder", "version": "1"}, supports={UPDATED: [1, 2]}),  # 4
    hello("tablet", "ann", supports={UPDATED: [1]}),
    hello("laptop", "bob"),
    # Presence
    say("laptop", "watch", users=["ann", "nobody"]),  # 7
    say("phone", "watch", users=["ann", "bob"]),
    say("phone", "status.set", status="busy", text="Lunch, soon", until=1_800_000_060_000),
    say("phone", "presence.get", users=["ann", "bob"]),
    say("laptop", "presence.get", users=["ann"]),
    {"advance": 61.0},
    say("phone", "status.set", status="invisible"),
    say("phone", "status.set", status="auto"),
    say("laptop", "privacy.set", last_seen="hidden", hide_from=["zoe"]),
    say("laptop", "privacy.set", last_seen="shown", hide_from=[]),
    say("phone", "unwatch", users=["bob"]),
    # Rooms
    say("phone", "room.join", room="hall"),  # 18
    say("laptop", "room.join", room="hall"),
    say("phone", "room.list"),
    say("phone", "room.send", room="hall", body={"text": "hello", "n": [1, 2.5, None, True]}, key="k1", trace="t-1"),
    say("phone", "room.send", room="hall", body="again", key="k1"),
    say("laptop", "room.send", room="hall", body="hi"),
    say("phone", "room.edit", room="hall", ref=1, body="hello!"),
    say("laptop", "room.delete", room="hall", ref=2, key="k2"),
    say("laptop", "room.read", room="hall", seq=2),
    say("phone", "room.history", room="hall", after=0, limit=2),
    say("phone", "room.history", room="hall", before=3),
    say("phone", "room.present", room="hall"),
    say("phone", "room.join", room="club"),
    say("laptop", "room.join", room="club", after=0),
    say("phone", "room.join", room="secret"),
    # Typing and signals
    say("laptop", "typing.start", room="hall"),  # 33
    say("laptop", "typing.stop", room="hall"),
    {"advance": 3.0},
    say("laptop", "typing.start", room="hall"),
    {"advance": 6.0},
    say("phone", "signal.send", room="hall", kind="cursor", body={"x": 1}, key="c"),
    say("phone", "signal.send", user="bob", kind="wave", body=None),
    # The inbox
    ask("POST", "/v1/notifications", {"user": "ann", "kind": "news", "body": {"n": 1}, "key": "n1"}),  # 40
    ask("POST", "/v1/notifications", {"user": "ann", "kind": "news", "body": 2}),
    ask("POST", "/v1/notifications", {"user": "ann", "kind": "alarm", "body": 3}),
    say("phone", "inbox.list"),
    say("phone", "inbox.seen", through=1),
    say("phone", "inbox.read", through=2),
    say("tablet", "inbox.archive", ids=["$40.answer.body.id"]),
    say("tablet", "inbox.ack", ids=["$42.answer.body.id"]),
    {"advance": 2.0},
    say("phone", "inbox.list", filter="archived", limit=1),
    # Devices, tokens, others
    say("phone", "device.register", provider="fcm", token="t" * 100),  # 50
    say("phone", "device.remove"),
    say("phone", "activity"),
    say("phone", "token.refresh", token="not a token"),
    say("phone", "no.such.command"),
    say("phone", "room.send", room="hall"),
    say("phone", "room.send", room="no such room", body=1),
    # Resume
    hello("phone2", "ann", resume={"session": "$4.answer.session", "rooms": {"hall": 1}, "inbox": 1}),  # 57
    ask("GET", "/v1/users/ann/presence"),
    ask("GET", "/v1/users/ann/sessions"),
    ask("GET", "/v1/users/ann/inbox"),
    ask("GET", "/v1/rooms"),
    ask("GET", "/v1/rooms/hall/messages?after=0"),
    ask("GET", "/v1/rooms/club/members"),
    ask("POST", "/v1/presence/query", {"users": ["ann", "bob", "nobody"]}),
    ask("POST", "/v1/rooms/hall/messages", {"user": "bot", "body": "from an app", "key": "k9"}),
    ask("POST", "/v1/signals", {"room": "hall", "kind": "poke", "body": 1}),
    ask("DELETE", "/v1/rooms/club/members/bob"),
    say("laptop", "room.leave", room="hall"),
    say("laptop", "bye"),
    {"advance": 1.0},
    # A version that the client cannot read, then its end
    hello("old", "cid", supports={"room.message": [9]}, resume={"rooms": {"hall": 5}}),  # 71
    say("phone2", "room.send", room="hall", body="unread"),
    {"advance": 5.0},
    {"stop": True},
]

# Requests to a server on the store of the previous one.
AFTER: list[Step] = [
    ask("GET", "/v1/rooms"),
    ask("GET", "/v1/rooms/hall/messages?after=0"),
    ask("GET", "/v1/rooms/club/members"),
    ask("GET", "/v1/users/ann/inbox"),
    hello("phone", "ann", resume={"rooms": {"hall": 0, "club": 0}, "inbox": 0}),
    say("phone", "room.list"),
    say("phone", "presence.get", users=["ann"]),
    say("phone", "inbox.list", filter="archived"),
    say("phone", "room.send", room="hall", body="sent again", key="k1"),
    say("phone", "room.send", room="hall", body="new"),
    ask("POST", "/v1/notifications", {"user": "ann", "kind": "news", "body": {"n": 1}, "key": "n1"}),
    ask("POST", "/v1/notifications", {"user": "ann", "kind": "news", "body": 4}),
]
