"""Bus messages of nodes and their data in Redis: recorded, and read again."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec

from greendot.auth.model import Revocation
from greendot.engine import messages as base
from greendot.engine.messages import ClusterAnswer, ClusterQuestion
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec
from greendot.presence.model import ManualStatus, SessionEpoch
from hosts import RedisNode
from redis_servers import RedisProcess

KEY = b"a key for fixtures, thirty-two l"
CHANNEL, NODE_CHANNEL = "room:{9k}:t1/lobby", "node:{9k}:k3Fa"
PREFIX = "old:"

# One message of each type that a node publishes, with a value in each field.
SENT: list[base.AnySent] = [
    base.Deliver(b'\x81\x05{"a"}', 7, "cursor", "k3Fa/1", 3),
    base.Notified([(7, b"\x81\x02{}", False), (8, b"", True)]),
    base.InboxChanged(b"\x81\x02{}", "k3Fa/1", [7, 8], 9),
    base.MembersChanged(),
    base.MemberRemoved("t1", "lobby", "ann", "left", "k3Fa", 3),
    base.Acknowledged(3, "k3Fa", 2, True),
    base.Revoked(Revocation("t1", "user", "ann", 1_800_000_060_000, 1_800_000_000_000), "k3Fa", 4),
    base.Disconnect("k3Fa-s1", 4503, "operator", "t1"),
    base.RoomOrder("t1", "alice", "lobby", "k3Fa-s1", join=False),
    base.Audit(),
    base.HoldSession("k3Fa-s1", "t1", "ann", 1_500),
    base.StatusChanged(),
    base.ProfileChanged("t1", "ann"),
    base.Receipt("ann", 7),
    base.VisibilityChanged("t1", "ann", "k3Fa", 6, True),
    base.LimitReport("k3Fa", [("sends", "t1", 12.5)], [("t1", 3, 5, True)]),
    ClusterQuestion(b"{}", "k3Fa", 7),
    ClusterAnswer(7, "k3Fa", b"{}"),
    base.SessionsQuestion([("t1", "ann", ""), ("t1", "bob", "lobby")], "k3Fa", 8),
    base.StreamPost("k3Fa-x", 2, ["{}"], 1000, "k3Fa", 9),
]


# Classes by their names in recordings. On the bus they have tags.
RECORDED_AS = {
    "ClusterAnswer": "Answered",
    "ClusterQuestion": "Asked",
    "HoldSession": "Awaited",
    "StatusChanged": "Restated",
    "VisibilityChanged": "Regarded",
}


FIELDS_RECORDED_AS = {"visible": "face"}


def kind(message: Any) -> str:
    name = type(message).__name__
    return RECORDED_AS.get(name, name)


def fields(message: Any) -> Any:
    """Return the fields as plain data under their recorded names, equal for classes with new fields."""
    named = {FIELDS_RECORDED_AS.get(name, name): value for name, value in msgspec.structs.asdict(message).items()}
    return msgspec.json.decode(msgspec.json.encode(named))


def sent() -> list[dict[str, Any]]:
    """Return all message types with their bytes on the bus and their fields."""
    messages = BusCodec(KEY)
    return [
        {
            "kind": kind(message),
            "bytes": b64encode(messages.write(NODE_CHANNEL, message, base.Topic("user", "t1", "ann"))).decode(),
            "fields": fields(message),
        }
        for message in SENT
    ]


class People:
    """A few users on one node, as stored in Redis."""

    def __init__(self, port: int) -> None:
        self.node = RedisNode(f"redis://127.0.0.1:{port}", PREFIX, key=KEY)

    async def come(self) -> None:
        node = self.node
        await node.start()
        engine = node.engine
        users = ("ann", "bob", "cid", "dee", "eve")
        await engine.subscribe([base.Topic("watch", "t1", user) for user in users])
        await engine.subscribe([base.Topic("room", "t1", "lobby")])
        for number, user in enumerate(users):
            await engine.touch("t1", user, self.ref(user), "phone", False, f"{user} | {number}")
        await engine.touch("t1", "ann", SessionEpoch(f"{node.incarnation}-ann2", node.incarnation, 1), "tv", True, None)
        await engine.set_status("t1", "ann", ManualStatus("busy", None, "Lunch, soon; 50%", 3))
        await engine.set_status("t1", "bob", ManualStatus(rev=1))
        await engine.set_status("t1", "cid", ManualStatus("invisible", rev=2))
        for user in ("dee", "eve"):
            await engine.set_status("t1", user, ManualStatus())
        await engine.touch("t1", "bob", self.ref("bob"), "phone", True, None)
        await engine.linger("t1", "dee", self.ref("dee"), 600_000, 20)
        await engine.linger("t1", "eve", self.ref("eve"), 0, 20)
        for user in ("ann", "bob"):
            await engine.enter("t1", "lobby", user, self.ref(user))
        await engine.exit("t1", "lobby", "bob", self.ref("bob"))
        engine.typing_start("t1", "lobby", "ann", "Ann; A.")
        await node.settle()

    def ref(self, user: str) -> SessionEpoch:
        return SessionEpoch(f"{self.node.incarnation}-{user}", self.node.incarnation, 1)


async def seen_by(node: RedisNode) -> dict[str, Any]:
    """Return a node's view of the data in Redis."""
    engine, users = node.engine, ["ann", "bob", "cid", "dee", "eve", "nobody"]
    sessions = {user: await engine.sessions("t1", user) for user in users}
    seen = {
        # Visible state of each user, without the stale flag, which is not stored.
        "presence": msgspec.to_builtins([snapshot[:4] for snapshot in await engine.read("t1", users)]),
        "online": (await engine.online("t1", None, 10)).users,
        "sessions": {
            user: [
                [entry.session.partition("-")[2], entry.device, entry.state, entry.ends_in_ms is not None]
                for entry in them
            ]
            for user, them in sessions.items()
        },
        "present": await engine.present("t1", "lobby"),
        "typers": [typist.user for typist in await engine.typers("t1", "lobby")],
    }
    return msgspec.json.decode(msgspec.json.encode(seen))


async def recorded(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the messages that scripts published while a few users connected, and the contents of Redis afterwards."""
    with RedisProcess("redis", folder) as redis:
        heard: list[dict[str, Any]] = []
        people = People(redis.port)
        read = people.node.engine.pushed

        def pushed(push: list[Any]) -> None:
            if push[0] in (b"message", "message") and bytes(push[-1])[:1] in b"ctp":
                heard.append({"channel": bytes(push[1]).decode(), "bytes": b64encode(push[2]).decode()})
            read(push)

        people.node.engine.pushed = pushed  # type: ignore[method-assign]
        await people.come()
        for entry, (_, message) in zip(heard, people.node.heard, strict=True):
            entry |= {"kind": kind(message), "fields": fields(message)}
        kept = {"incarnation": people.node.incarnation, "now": people.node.engine.now_ms()}
        kept |= {"keys": contents(redis), "seen": await seen_by(people.node)}
        await people.node.close()
        return heard, kept


def contents(redis: RedisProcess) -> dict[str, Any]:
    """Return the contents of all keys."""
    found: dict[str, Any] = {}
    for name in sorted(text(each) for each in redis.command("KEYS", "*")):
        if text(redis.command("TYPE", name)) == "hash":
            flat = [text(each) for each in redis.command("HGETALL", name)]
            found[name] = dict(sorted(zip(flat[::2], flat[1::2], strict=True)))
        elif text(redis.command("TYPE", name)) == "zset":
            flat = [text(each) for each in redis.command("ZRANGE", name, 0, -1, "WITHSCORES")]
            found[name] = [*zip(flat[::2], flat[1::2], strict=True)]
    return found


def put_back(redis: RedisProcess, kept: dict[str, Any]) -> None:
    """Write the recorded contents to Redis; its time continues from the recording."""
    late = kept["now"] - int(text(redis.command("TIME")[0])) * 1000
    for name, value in kept["keys"].items():
        if isinstance(value, dict):
            redis.command("HSET", name, *(word for pair in value.items() for word in pair))
        else:
            redis.command("ZADD", name, *(word for member, score in value for word in (score, member)))
    for partition in range(keys.PARTITIONS):
        redis.command("HSET", keys.nodes_key(PREFIX, partition), "~clock", late)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
