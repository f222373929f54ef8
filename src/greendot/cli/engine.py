"""Commands for operators: `greendot nodes`, `presence`, `sessions`, `typing` and `sweep`.

They connect to the shared engine without a server, and do not join it as a node. They see what all servers see.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop
from msgspec import Struct

from greendot.app.adapters import make_engine
from greendot.cli._options import check_ids, engine_option, json_option, print_json, tenant_option
from greendot.cli._settings import as_running_server, config_option, settings_from
from greendot.cli._store import on_a_loop
from greendot.cli._tables import NOTHING, ago, left, print_table, several, table
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.engine.redis.engine import RedisEngine
from greendot.engine.results import NodeInfo, Swept
from greendot.errors import ConfigError
from greendot.presence.model import project
from greendot.protocol.events import Presence
from greendot.protocol.replies import PresenceReply, Typer

SLOW_S = 2.0  # after which a command prints that it is at work

T = TypeVar("T")


class EngineAccess:
    """Engine of a command. `run` reads its settings, after the command has checked its arguments."""

    def __init__(self, url: str | None, config: Path | None) -> None:
        self._url = url
        self._config = config

    def run(self, request: str, work: Callable[[RedisEngine], Awaitable[T]]) -> T:
        """Connect to the engine, run `work` and close the connection.

        Raise ConfigError with the HTTP request to send instead, `request`, if only the server itself can answer.
        """
        return on_a_loop(observing(self._settings(request), work), uvloop.new_event_loop)

    def _settings(self, request: str) -> Settings:
        settings = as_running_server(settings_from(self._config, {"engine": {"url": self._url}}))
        if settings.engine.url == "memory":
            raise ConfigError(
                "the memory engine is inside the server process and cannot be read from here. Send the server "
                f"{request}. If the servers share a Redis, give its URL: --engine redis://HOST:PORT"
            )
        if not settings.auth.secret:
            raise ConfigError(
                "auth.secret is not set, but servers accept only messages signed with it. Set GREENDOT_AUTH_SECRET to "
                "the secret of the servers. For a dev server, run this command in its working directory: there "
                f"is no secret in {settings.server.data_dir}."
            )
        return settings


async def observing(settings: Settings, work: Callable[[RedisEngine], Awaitable[T]]) -> T:
    """Run `work` with the engine, without joining it as a node."""
    engine = make_engine(settings, SystemClock())
    assert isinstance(engine, RedisEngine)
    await engine.observe()
    try:
        return await work(engine)
    finally:
        await engine.close()


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --engine and --config. The command gets them as an `EngineAccess`."""

    @engine_option
    @config_option
    @wraps(command)
    def called(engine: str | None, config: Path | None, **rest: Any) -> None:
        command(access=EngineAccess(engine, config), **rest)

    return called


class SessionEntry(Struct, frozen=True):
    """Session in the engine, under the names of the HTTP API."""

    session: str
    user: str
    device: str
    node: str
    state: str  # online, idle or lingering
    ends_in_ms: int | None  # set if the session lingers, or its node is dead


@click.command()
@json_option
@engine_options
def nodes(as_json: bool, access: EngineAccess) -> None:
    """List the nodes on the engine, live and dead, and when the sessions of dead nodes end."""

    async def look(engine: RedisEngine) -> tuple[list[NodeInfo], int]:
        return await engine.nodes(), engine.time.now()

    found, now = access.run("GET /v1/nodes", look)
    if as_json:
        print_json({"nodes": [node._asdict() for node in found]})
        return
    rows = [
        (node.node, node.state, node.level, ago(node.renewed_at, now), left(node.ends_at and node.ends_at - now))
        for node in found
    ]
    print_table(("NODE", "STATE", "LOAD", "RENEWED", "SESSIONS END IN"), rows, "No nodes found on this engine.")


@click.command()
@click.argument("users", metavar="USER…", nargs=-1, required=True)
@tenant_option
@json_option
@engine_options
def presence(users: tuple[str, ...], tenant: str, as_json: bool, access: EngineAccess) -> None:
    """Show the presence of each USER as other users see it."""
    check_ids("user", users, tenant)
    request = f"GET /v1/users/{users[0]}/presence" if len(users) == 1 else "POST /v1/presence/query"

    async def look(engine: RedisEngine) -> tuple[list[Presence], int]:
        snapshots = await engine.read(tenant, users)
        return [project(user, seen) for user, seen in zip(users, snapshots, strict=True)], engine.time.now()

    entries, now = access.run(request, look)
    if as_json:
        print_json(PresenceReply(entries))
        return
    rows = [
        (
            entry.user,
            entry.state,
            ago(entry.since, now),
            ago(entry.last_seen, now),
            ", ".join(entry.devices or ()) or NOTHING,
            entry.status_text or NOTHING,
        )
        for entry in entries
    ]
    click.echo(table(("USER", "STATE", "SINCE", "LAST SEEN", "DEVICES", "STATUS TEXT"), rows))


@click.command()
@click.argument("user")
@tenant_option
@json_option
@engine_options
def sessions(user: str, tenant: str, as_json: bool, access: EngineAccess) -> None:
    """List the sessions of USER on all nodes."""
    check_ids("user", (user,), tenant)
    found = access.run(f"GET /v1/users/{user}/sessions", lambda engine: _sessions(engine, tenant, user))
    if as_json:
        print_json({"sessions": found})
        return
    rows = [(entry.session, entry.device, entry.node, entry.state, left(entry.ends_in_ms)) for entry in found]
    print_table(("SESSION", "DEVICE", "NODE", "STATE", "ENDS IN"), rows, f"{user} has no sessions.")


async def _sessions(engine: RedisEngine, tenant: str, user: str) -> list[SessionEntry]:
    entries, lives, now = await engine.sessions(tenant, user), await engine.nodes(), engine.time.now()
    ends = {life.node: life.ends_at - now for life in lives if life.ends_at is not None}
    found = []
    for entry in entries:
        known = [ms for ms in (entry.ends_in_ms, ends.get(entry.node)) if ms is not None]
        state = "lingering" if known else entry.state
        found.append(
            SessionEntry(entry.session, user, entry.device, entry.node, state, max(0, min(known)) if known else None)
        )
    return found


@click.command()
@click.argument("room")
@tenant_option
@json_option
@engine_options
def typing(room: str, tenant: str, as_json: bool, access: EngineAccess) -> None:
    """List the users who are typing in ROOM."""
    check_ids("room", (room,), tenant)
    found = access.run(f"GET /v1/rooms/{room}/typing", lambda engine: engine.typers(tenant, room))
    typers = [Typer(*typist) for typist in found]
    if as_json:
        print_json({"typing": typers})
        return
    rows = [(typer.user, typer.name or NOTHING, left(typer.expires_in_ms)) for typer in typers]
    print_table(("USER", "NAME", "STOPS IN"), rows, f"No user is typing in {room}.")


@click.command()
@json_option
@engine_options
def sweep(as_json: bool, access: EngineAccess) -> None:
    """End leftover sessions, and remove old entries from the engine.

    A leftover session belongs to a dead node, or its grace has ended.

    Nodes sweep every ten minutes. Use the settings of the servers: presence.last_seen_days decides which last-seen
    times are removed.
    """

    async def look(engine: RedisEngine) -> tuple[Swept, int]:
        if sys.stderr.isatty():
            asyncio.get_running_loop().call_later(SLOW_S, click.echo, "Checking all users …", sys.stderr)
        swept = await engine.sweep()
        return swept, sum(node.state == "live" for node in await engine.nodes())

    swept, asked = access.run("GET /v1/stats", look)
    if as_json:
        print_json(swept._asdict() | {"asked": asked})
        return
    for sentence in _repairs(swept) or ["Nothing to repair."]:
        click.echo(sentence)
    if asked:
        click.echo(
            f"Live nodes that now compare their sessions with the engine: {asked}. The metric "
            "presence_audited_sessions_total counts the sessions that they end."
        )


def _repairs(swept: Swept) -> list[str]:
    counted = [
        (swept.sessions, f"Ended {several(swept.sessions, 'leftover session')}."),
        (swept.users, f"{several(swept.users, 'user')} went offline as a result."),
        (swept.forgotten, f"Removed the old last-seen time of {several(swept.forgotten, 'user')}."),
        (swept.nodes, f"Removed {several(swept.nodes, 'dead node')} from the list."),
    ]
    return [sentence for count, sentence in counted if count]
