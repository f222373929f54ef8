"""Commands for operators: `greendot nodes`, `presence`, `sessions`, `typing` and `sweep`.

They connect to the shared engine without a server, and do not join it as a node. They see what all servers see. With
--url, or if the engine is in the memory of a server, all but `sweep` ask the server.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec
import uvloop
from msgspec import Struct

from greendot.app.adapters import make_engine
from greendot.cli._http import ask
from greendot.cli._options import check_ids, engine_option, json_option, print_json
from greendot.cli._settings import as_running_server, config_option, settings_from
from greendot.cli._store import on_a_loop
from greendot.cli._tables import NOTHING, ago, left, print_table, several, table
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.engine.redis.engine import RedisEngine
from greendot.engine.results import Swept
from greendot.errors import ConfigError
from greendot.presence.model import project
from greendot.protocol.replies import PresenceReply, Typer

SLOW_S = 2.0  # after which a command prints that it is at work

T = TypeVar("T")
url_option = click.option("--url", metavar="URL", help="Ask this server, not the shared engine.")
tenant_option = click.option(
    "--tenant", metavar="T", help="Tenant of the users and rooms. [default: default; of a server: that of the API key]"
)


class NodeEntry(Struct, frozen=True):
    """Node, under the names of the HTTP API."""

    node: str
    state: str
    renewed_at: int | None
    ends_at: int | None
    level: str


class Nodes(Struct, frozen=True):
    """Nodes on an engine."""

    nodes: list[NodeEntry]


class SessionEntry(Struct, frozen=True):
    """Session, under the names of the HTTP API."""

    session: str
    user: str
    device: str
    node: str
    state: str  # online, idle or lingering
    ends_in_ms: int | None  # set if the session lingers, or its node is dead


class Sessions(Struct, frozen=True, omit_defaults=True):
    """Sessions of a user."""

    sessions: list[SessionEntry]
    stale: bool = False  # whether the server may miss sessions


class TypingNow(Struct, frozen=True):
    """Users who type in a room."""

    typing: list[Typer]


class Source(NamedTuple):
    """Place where a command finds its answer: the path and the body of a request, and a read of the engine."""

    path: str
    body: dict[str, Any] | None
    look: Callable[[RedisEngine, str], Awaitable[Any]]  # from the engine and the tenant


class EngineAccess:
    """Engine or server of a command. Settings are read after the command has checked its arguments."""

    def __init__(self, engine: str | None, config: Path | None, url: str | None) -> None:
        self._engine = engine
        self._config = config
        self._url = url

    def find(self, kind: type[T], source: Source, tenant: str | None, as_json: bool) -> tuple[T, int] | None:
        """Return the answer and its time in milliseconds; with `as_json`, print the answer and return None.

        Raise UsageError for options that do not go together, ConfigError if there is no answer.
        """
        if self._url is not None and self._engine is not None:
            raise click.UsageError("Give either --url (ask a server) or --engine (read the shared engine), not both.")
        if self._url is None and self._settings().engine.url != "memory":
            found, now = self.run(lambda engine: _looked(engine, source, tenant or "default"))
            data = found
        elif tenant is not None:
            raise click.UsageError("--tenant needs a shared engine: a server takes the tenant from the API key.")
        else:
            instead = "read the engine that the servers share with --engine URL"
            url, data, now = ask(self._config, self._url, source.path, source.body, instead=instead)
            found = _decoded(url, data, kind)
        if as_json:
            print_json(data)
            return None
        return found, now

    def run(self, work: Callable[[RedisEngine], Awaitable[T]]) -> T:
        """Connect to the engine, run `work` and close the connection.

        Raise ConfigError if the engine is in the memory of a server, or the secret is missing.
        """
        settings = self._settings()
        if settings.engine.url == "memory":
            raise ConfigError(
                "the memory engine is inside the server process, which repairs it by itself. If the servers share a "
                "Redis, give its URL: --engine redis://HOST:PORT"
            )
        if not settings.auth.secret:
            raise ConfigError(
                "auth.secret is not set, but servers accept only messages signed with it. Set GREENDOT_AUTH_SECRET to "
                "the secret of the servers. For a dev server, run this command in its working directory: there "
                f"is no secret in {settings.server.data_dir}."
            )
        return on_a_loop(observing(settings, work), uvloop.new_event_loop)

    def _settings(self) -> Settings:
        return as_running_server(settings_from(self._config, {"engine": {"url": self._engine}}))


def _decoded(url: str, data: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"cannot read the answer of {url} ({error}). Use the greendot command of the server's version."
        ) from None


async def _looked(engine: RedisEngine, source: Source, tenant: str) -> tuple[Any, int]:
    return await source.look(engine, tenant), engine.time.now()


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
    """Add --engine and --config. The command gets them, and its --url if it has one, as an `EngineAccess`."""

    @engine_option
    @config_option
    @wraps(command)
    def called(engine: str | None, config: Path | None, url: str | None = None, **rest: Any) -> None:
        command(access=EngineAccess(engine, config, url), **rest)

    return called


@click.command()
@json_option
@url_option
@engine_options
def nodes(as_json: bool, access: EngineAccess) -> None:
    """List the nodes on the engine, live and dead, and when the sessions of dead nodes end."""

    async def look(engine: RedisEngine, tenant: str) -> Nodes:
        return Nodes([NodeEntry(**node._asdict()) for node in await engine.nodes()])

    if (answer := access.find(Nodes, Source("/v1/nodes", None, look), None, as_json)) is None:
        return
    found, now = answer
    rows = [
        (node.node, node.state, node.level, ago(node.renewed_at, now), left(node.ends_at and node.ends_at - now))
        for node in found.nodes
    ]
    print_table(("NODE", "STATE", "LOAD", "RENEWED", "SESSIONS END IN"), rows, "No nodes found on this engine.")


@click.command()
@click.argument("users", metavar="USER…", nargs=-1, required=True)
@tenant_option
@json_option
@url_option
@engine_options
def presence(users: tuple[str, ...], tenant: str | None, as_json: bool, access: EngineAccess) -> None:
    """Show the presence of each USER as other users see it."""
    check_ids("user", users, tenant)

    async def look(engine: RedisEngine, tenant: str) -> PresenceReply:
        snapshots = await engine.read(tenant, users)
        return PresenceReply([project(user, seen) for user, seen in zip(users, snapshots, strict=True)])

    source = Source("/v1/presence/query", {"users": users}, look)
    if (answer := access.find(PresenceReply, source, tenant, as_json)) is None:
        return
    found, now = answer
    rows = [
        (
            entry.user,
            entry.state,
            ago(entry.since, now),
            ago(entry.last_seen, now),
            ", ".join(entry.devices or ()) or NOTHING,
            entry.status_text or NOTHING,
        )
        for entry in found.presence
    ]
    click.echo(table(("USER", "STATE", "SINCE", "LAST SEEN", "DEVICES", "STATUS TEXT"), rows))


@click.command()
@click.argument("user")
@tenant_option
@json_option
@url_option
@engine_options
def sessions(user: str, tenant: str | None, as_json: bool, access: EngineAccess) -> None:
    """List the sessions of USER on all nodes."""
    check_ids("user", (user,), tenant)
    source = Source(f"/v1/users/{user}/sessions", None, lambda engine, tenant: _sessions(engine, tenant, user))
    if (answer := access.find(Sessions, source, tenant, as_json)) is None:
        return
    found, _ = answer
    rows = [(entry.session, entry.device, entry.node, entry.state, left(entry.ends_in_ms)) for entry in found.sessions]
    print_table(("SESSION", "DEVICE", "NODE", "STATE", "ENDS IN"), rows, f"{user} has no sessions.")
    if found.stale:
        click.echo("Sessions may be missing: the engine is away, or lost records are being restored.", err=True)


async def _sessions(engine: RedisEngine, tenant: str, user: str) -> Sessions:
    entries, lives, now = await engine.sessions(tenant, user), await engine.nodes(), engine.time.now()
    ends = {life.node: life.ends_at - now for life in lives if life.ends_at is not None}
    found = []
    for entry in entries:
        known = [ms for ms in (entry.ends_in_ms, ends.get(entry.node)) if ms is not None]
        state = "lingering" if known else entry.state
        found.append(
            SessionEntry(entry.session, user, entry.device, entry.node, state, max(0, min(known)) if known else None)
        )
    return Sessions(found)


@click.command()
@click.argument("room")
@tenant_option
@json_option
@url_option
@engine_options
def typing(room: str, tenant: str | None, as_json: bool, access: EngineAccess) -> None:
    """List the users who are typing in ROOM."""
    check_ids("room", (room,), tenant)

    async def look(engine: RedisEngine, tenant: str) -> TypingNow:
        return TypingNow([Typer(*typist) for typist in await engine.typers(tenant, room)])

    if (answer := access.find(TypingNow, Source(f"/v1/rooms/{room}/typing", None, look), tenant, as_json)) is None:
        return
    found, _ = answer
    rows = [(typer.user, typer.name or NOTHING, left(typer.expires_in_ms)) for typer in found.typing]
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

    swept, asked = access.run(look)
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
