"""Command `greendot inspect`: all data of a user, a room, a node or a topic, with expiry times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from greendot.cli import inspect_view
from greendot.cli._admin_socket import Where, dashboard_options, open_live, some_tenant_option
from greendot.cli._group import Group
from greendot.cli._options import json_option, print_json
from greendot.cli._store import on_a_loop
from greendot.config import check_id
from greendot.errors import ConfigError

Lines = Callable[[dict[str, Any], int], list[str]]  # from the answer and its time in ms to lines of text
KINDS = "room", "watch", "user"


@click.group("inspect", cls=Group)
def inspect() -> None:
    """Show all data of a user, a room, a node or a topic on all nodes, and when it expires.

    The command calls a running server through its dashboard socket. `nodes`, `presence`, `sessions` and `typing` need
    no dashboard, and read a shared engine even without a server.
    """


@inspect.command()
@click.argument("name", metavar="USER")
@some_tenant_option
@json_option
@dashboard_options
def user(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Show sessions, rooms, inbox, devices and watchers of USER, and when they expire."""
    _find(find_server, _named("user", name, tenant), as_json, inspect_view.user)


@inspect.command()
@click.argument("name", metavar="ROOM")
@some_tenant_option
@json_option
@dashboard_options
def room(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Show members, occupants and typing users of ROOM, and its subscribers on each node."""
    _find(find_server, _named("room", name, tenant), as_json, inspect_view.room)


@inspect.command()
@click.argument("name", metavar="NODE")
@json_option
@dashboard_options
def node(name: str, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Show the state, load and lease of NODE, and the connections and sessions on it."""
    _find(find_server, _named("node", name, None), as_json, inspect_view.node)


@inspect.command()
@click.argument("name", metavar="TOPIC")
@some_tenant_option
@json_option
@dashboard_options
def topic(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Show the subscribers of TOPIC on each node, and the frames that wait for them.

    TOPIC is room:ROOM, watch:USER (the watchers of a user) or user:USER (the user's own devices).
    """
    kind, _, rest = name.partition(":")
    if kind not in KINDS or not rest:
        raise click.UsageError(f"TOPIC must be {' or '.join(f'{kind}:NAME' for kind in KINDS)}, not {name!r}.")
    _check_names("name", rest, tenant)
    question = {"type": "find.topic", "kind": kind, "name": rest, "tenant": tenant}
    _find(find_server, question, as_json, inspect_view.topic)


def _named(what: str, name: str, tenant: str | None) -> dict[str, Any]:
    _check_names(what, name, tenant)
    return {"type": f"find.{what}", what: name, "tenant": tenant}


def _check_names(what: str, name: str, tenant: str | None) -> None:
    check_id(what, name)
    if tenant is not None:
        check_id("tenant", tenant)


def _find(find_server: Callable[[], Where], question: dict[str, Any], as_json: bool, lines: Lines) -> None:
    answer, now = on_a_loop(_asked(find_server(), question))
    if not answer["known"]:
        what = question["type"].removeprefix("find.")
        name = question.get(what) or f"{question['kind']}:{question['name']}"
        tenant = answer.get("tenant")
        found = "no subscribers found for topic" if what == "topic" else f"no data found for {what}"
        raise ConfigError(f"{found} {name!r}{f' in tenant {tenant}' if tenant else ''}.")
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(lines(answer, now)))


async def _asked(at: Where, question: dict[str, Any]) -> tuple[dict[str, Any], int]:
    async with open_live(at) as live:
        return await live.ask(**question), live.now_ms()
