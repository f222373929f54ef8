"""Sessions that a command revokes. The servers close them, and the command waits until they have ended."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import NamedTuple

import click

from greendot.auth.model import Revocation, RevocationKind
from greendot.cli._tables import several
from greendot.cli.engine import observing
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.engine.messages import Acknowledged, Disconnect, Message, Part, Revoked, Topic
from greendot.engine.redis.engine import RedisEngine
from greendot.errors import EngineUnavailable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.protocol.codes import Close
from greendot.store.port import Store

CONFIRM_S = 20.0  # for a server that is alone on its store: it reads revocations every 2 s
SPARE_S = 2.0  # time for a session to end, in addition to the grace
CHECK_S = 0.1  # between two checks
UNSURE = 1  # exit code if the sessions may not have ended


class EndedSessions(NamedTuple):
    """Result of a revocation.

    `sure`: all servers know the revocation, and the last commands of the sessions it covers are done.
    """

    sure: bool
    left: int | None = None  # sessions that the user still has; None: not counted

    @property
    def exit_code(self) -> int:
        return 0 if self.sure and not self.left else UNSURE

    def report(self, whose: str) -> None:
        """Print what is not certain."""
        if self.left:
            click.echo(f"{several(self.left, 'session')} did not end in time. Run this command again.")
        elif not self.sure:
            click.echo(
                f"Not all servers have confirmed that the sessions of {whose} have ended. These sessions may have "
                "written new data. Run this command again. If the servers share a Redis, give its URL: --engine URL."
            )


def revocation_until_now(settings: Settings, tenant: str, kind: RevocationKind, value: str) -> Revocation:
    """Return a revocation of every token issued until now."""
    now = SystemClock().now_ms()
    return Revocation(tenant, kind, value, now + settings.auth.longest_token_ms, before=now)


async def revoke_and_end(settings: Settings, store: Store, revocation: Revocation) -> EndedSessions:
    """Write the revocation to the store, and wait until the servers have ended the sessions it covers."""
    kept = await store.put_revocation(revocation)
    if settings.engine.url == "memory":
        return await _confirmed(store)
    return await observing(settings, lambda engine: _end_on_nodes(engine, settings, kept))


async def _confirmed(store: Store) -> EndedSessions:
    """Wait until the server that is alone on the store, if one runs, has confirmed the revocation.

    A command cannot reach this server by a bus. The server records its progress in the store. After `CONFIRM_S` the
    result is not sure.
    """
    progress = await store.revocation_progress()
    wanted, end = progress.given, asyncio.get_running_loop().time() + CONFIRM_S
    while progress.served and progress.confirmed < wanted:
        if asyncio.get_running_loop().time() > end:
            return EndedSessions(sure=False)
        await asyncio.sleep(CHECK_S)
        progress = await store.revocation_progress()
    return EndedSessions(sure=True)


class _Answers:
    """Listener of the bus for the acknowledgements of nodes to this command."""

    def __init__(self, rpc: ClusterRpc) -> None:
        self._rpc = rpc

    def receive(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Acknowledged):
            self._rpc.acknowledged(topic, message)

    def lost(self, part: Part) -> None: ...

    def found(self, part: Part, *, intact: bool) -> None: ...

    def reborn(self, incarnation: str) -> None: ...

    def died(self, incarnation: str) -> None: ...


async def _end_on_nodes(engine: RedisEngine, settings: Settings, revocation: Revocation) -> EndedSessions:
    name = f"command-{token_hex(8)}"
    rpc = ClusterRpc(engine, lambda: name)
    engine.bus.attach(_Answers(rpc))
    await engine.subscribe([Topic("node", "", name)])
    live = {node.node for node in await engine.nodes() if node.state == "live"}
    try:
        # Call all live nodes: no session with an old token may begin on a node without the revocation.
        await rpc.call(live, lambda asker, number: Revoked(revocation, asker, number))
        sure = True
    except EngineUnavailable:
        sure = False
    if revocation.kind != "user":
        return EndedSessions(sure)
    return EndedSessions(sure, await _see_off(engine, settings, revocation.tenant, revocation.value))


async def _see_off(engine: RedisEngine, settings: Settings, tenant: str, user: str) -> int:
    """End the user's sessions, and remove the user's last-seen time. Return how many sessions are left.

    A session exists until its last command is done.
    """
    end = asyncio.get_running_loop().time() + settings.presence.grace_s + SPARE_S
    asked: set[str] = set()
    while entries := await engine.sessions(tenant, user):
        for entry in entries:
            if entry.session not in asked:
                asked.add(entry.session)
                await engine.reach(entry.node, Disconnect(entry.session, Close.REVOKED, "the user was erased", tenant))
        if asyncio.get_running_loop().time() > end:
            break
        await asyncio.sleep(CHECK_S)
    await engine.forget(tenant, user)
    return len(entries)
