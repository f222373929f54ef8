"""The Redis engine, so far on one standalone server.

Not yet offered by the settings: leases and reaping, reconnecting, Sentinel and Cluster are still to come. What is here
passes the engine suite on Redis and Valkey and answers as the memory engine does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from greendot.core.presence import Manual, Ref, Snapshot
from greendot.core.typists import Typist
from greendot.engine.base import Engine, Fenced, Message, Page, Receiver, Topic, Touched
from greendot.engine.redis import keys
from greendot.engine.redis.link import Link, RedisError
from greendot.engine.redis.messages import Malformed, Messages
from greendot.engine.redis.pack import STATUS_LETTERS, escape, nodes_of, read_snapshot, unescape
from greendot.engine.redis.scripts import SCRIPTS
from greendot.errors import EngineUnavailable


class RedisEngine:
    """See `Engine`. `shift_ms` moves the engine's time, for tests."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        key: bytes,
        prefix: str = "",
        grace_ms: int = 30_000,
        typing_ttl_ms: int = 5_000,
        typing_throttle_ms: int = 2_000,
    ) -> None:
        self._address = address
        self._prefix = prefix
        self._messages = Messages(key)
        self._grace_ms = grace_ms
        self._typing_ttl_ms = typing_ttl_ms
        self._typing_throttle_ms = typing_throttle_ms
        self._topics: dict[str, Topic] = {}
        self._receiver: Receiver | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self.shift_ms = 0
        self.invalid = 0  # messages that were not ours

    # --- life ---

    async def start(self, incarnation: str, receiver: Receiver) -> None:
        self._incarnation, self._receiver = incarnation, receiver
        self._commands = await self._connect(lambda push: None)
        self._pushes = await self._connect(self._pushed)
        await asyncio.gather(*(self._commands.call("SCRIPT", "LOAD", script.source) for script in SCRIPTS.values()))
        taken = await asyncio.gather(
            *(
                self._commands.call("HSETNX", keys.nodes_key(self._prefix, partition), incarnation, "live")
                for partition in range(keys.PARTITIONS)
            )
        )
        if not all(taken):
            raise Fenced(incarnation)
        await self.subscribe([Topic("node", "", incarnation)])

    async def close(self) -> None:
        now = await self._now()
        life = f"{now:x},{now + self._grace_ms:x}"
        await asyncio.gather(
            *(
                self._commands.call("HSET", keys.nodes_key(self._prefix, partition), self._incarnation, life)
                for partition in range(keys.PARTITIONS)
            )
        )
        self._receiver = None
        await asyncio.gather(*self._tasks)
        self._commands.close()
        self._pushes.close()

    async def _connect(self, pushed: Any) -> Link:
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_connection(lambda: Link(pushed, lambda link: None), *self._address)
        except OSError as error:
            raise EngineUnavailable(str(error)) from None
        await link.call("HELLO", "3")
        return link

    async def _now(self) -> int:
        seconds, micros = await self._commands.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000 + self.shift_ms

    # --- presence ---

    async def touch(
        self, tenant: str, user: str, ref: Ref, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        letter = "" if idle is None else "i" if idle else "a"
        try:
            resumed, known = await self._verb("touch", tenant, user, *ref, device, letter, escape(name))
        except RedisError as error:
            if error.code == "FENCED":
                raise Fenced(ref.incarnation) from None
            raise
        return Touched(bool(known), bool(resumed))

    async def linger(self, tenant: str, user: str, ref: Ref, grace_ms: int, silent_ms: int) -> int | None:
        return _remaining(await self._verb("linger", tenant, user, *ref, grace_ms, silent_ms))

    async def leave(self, tenant: str, user: str, ref: Ref) -> int | None:
        return _remaining(await self._verb("leave", tenant, user, *ref))

    async def set_status(self, tenant: str, user: str, manual: Manual) -> Snapshot:
        until = "" if manual.until is None else manual.until
        answer = await self._verb(
            "status", tenant, user, STATUS_LETTERS[manual.status], manual.rev, until, escape(manual.text)
        )
        return read_snapshot(answer.decode())

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        shares: dict[int, list[int]] = {}
        where = [keys.user_keys(self._prefix, tenant, user) for user in users]
        for index, user in enumerate(where):
            shares.setdefault(user.partition, []).append(index)
        answers = await asyncio.gather(*(self._read_share([where[i] for i in share]) for share in shares.values()))
        found: dict[int, Snapshot] = {}
        for share, answer in zip(shares.values(), answers, strict=True):
            found.update(zip(share, answer, strict=True))
        return [found[index] for index in range(len(users))]

    async def _read_share(self, where: list[keys.UserKeys]) -> list[Snapshot]:
        names = [where[0].nodes, *(key for user in where for key in (user.presence, user.seen))]
        fields = [text for user in where for text in (user.field, user.channel)]
        answer = await self._eval("read", names, self.shift_ms, "PUBLISH", self._messages.script_key, *fields)
        return [read_snapshot(text.decode()) for text in answer]

    async def online(self, tenant: str, after: str | None, limit: int) -> Page:
        there: list[str] = []
        for partition in range(keys.PARTITIONS):
            users = await self._in_partition(tenant, partition)
            snapshots = await self.read(tenant, users)
            there += [u for u, snapshot in zip(users, snapshots, strict=True) if snapshot.face.state != "offline"]
        there.sort()
        rest = [user for user in there if after is None or user > after]
        return Page(rest[:limit], rest[limit - 1] if len(rest) > limit else None, len(there))

    async def _in_partition(self, tenant: str, partition: int) -> list[str]:
        buckets = [keys.buckets(self._prefix, partition, bucket)[0] for bucket in range(keys.BUCKETS)]
        found = await asyncio.gather(*(self._commands.call("HKEYS", bucket) for bucket in buckets))
        fields = [field.decode() for bucket in found for field in bucket]
        return [field.removeprefix(f"{tenant}/") for field in fields if field.startswith(f"{tenant}/")]

    async def _verb(self, name: str, tenant: str, user: str, *arguments: str | int) -> Any:
        where = keys.user_keys(self._prefix, tenant, user)
        return await self._eval(
            name,
            [where.presence, where.nodes, where.seen],
            self.shift_ms,
            where.field,
            where.channel,
            "PUBLISH",
            self._messages.script_key,
            *arguments,
        )

    async def _eval(self, name: str, names: list[str], *arguments: str | int) -> Any:
        script = SCRIPTS[name]
        try:
            return await self._commands.call("EVALSHA", script.sha, len(names), *names, *arguments)
        except RedisError as error:
            if error.code != "NOSCRIPT":
                raise
        return await self._commands.call("EVAL", script.source, len(names), *names, *arguments)

    # --- typing ---

    def typing_start(self, tenant: str, room: str, user: str, name: str | None) -> None:
        self._typing("typing_start", tenant, room, user, escape(name), self._typing_ttl_ms, self._typing_throttle_ms)

    def typing_stop(self, tenant: str, room: str, user: str) -> None:
        self._typing("typing_stop", tenant, room, user, self._typing_ttl_ms)

    def _typing(self, verb: str, tenant: str, room: str, *arguments: str | int) -> None:
        self._commands.post(
            "EVALSHA",
            SCRIPTS[verb].sha,
            1,
            keys.typing_key(self._prefix, tenant, room),
            self.shift_ms,
            keys.channel(self._prefix, Topic("room", tenant, room)),
            "PUBLISH",
            self._messages.script_key,
            *arguments,
        )

    async def typers(self, tenant: str, room: str) -> list[Typist]:
        key = keys.typing_key(self._prefix, tenant, room)
        answer = await self._eval("typers", [key], self.shift_ms, self._typing_ttl_ms)
        found = []
        for member, remaining in zip(answer[::2], answer[1::2], strict=True):
            user, _, name = member.decode().partition("|")
            found.append(Typist(user, unescape(name), int(remaining)))
        return found

    # --- bus ---

    def publish(self, topic: Topic, message: Message) -> None:
        if topic.kind == "user":
            task = asyncio.ensure_future(self._to_user(topic, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        channel = keys.channel(self._prefix, topic)
        self._commands.post("PUBLISH", channel, self._messages.write(channel, message))

    async def _to_user(self, topic: Topic, message: Message) -> None:
        where = keys.user_keys(self._prefix, topic.tenant, topic.name)
        try:
            record = await self._commands.call("HGET", where.presence, where.field)
        except EngineUnavailable:
            return  # a signal: at most once
        for node in nodes_of(record.decode()) if record else ():
            channel = keys.channel(self._prefix, Topic("node", "", node))
            self._commands.post("PUBLISH", channel, self._messages.write(channel, message, topic))

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        wanted = {keys.channel(self._prefix, topic): topic for topic in topics}
        self._topics.update(wanted)
        if wanted:
            self._pushes.post_push("SUBSCRIBE", *wanted)
            await self._pushes.call("PING")

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        unwanted = [keys.channel(self._prefix, topic) for topic in topics]
        for channel in unwanted:
            self._topics.pop(channel, None)
        if unwanted:
            self._pushes.post_push("UNSUBSCRIBE", *unwanted)
            await self._pushes.call("PING")

    def _pushed(self, push: list[Any]) -> None:
        if push[0] != b"message" or self._receiver is None:
            return
        channel = push[1].decode()
        topic = self._topics.get(channel)
        if topic is None:
            return
        try:
            named, message = self._messages.read(channel, push[2])
        except Malformed:
            self.invalid += 1
            return
        self._receiver(named or topic, message)


def _remaining(answer: int) -> int | None:
    return None if answer < 0 else answer


_: type[Engine] = RedisEngine
