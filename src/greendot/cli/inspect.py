"""Command `greendot inspect`: all data of a user, a room, a node or a topic, and how long it lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from greendot.cli import inspect_view
from greendot.cli._admin_socket import Where, dashboard_options, open_live, some_tenant_option
from greendot.cli._options import json_option, print_json
from greendot.cli._store import on_a_loop
from greendot.config import check_id
from greendot.errors import ConfigError

Lines = Callable[[dict[str, Any], int], list[str]]  # from the answer and its time in ms to lines of text
KINDS = "room", "watch", "user"


@click.group("inspect")
def inspect() -> None:
    """All there is of a user, a room, a node or a topic, wherever it is, and how long it lasts.

    A running server is asked, by its dashboard's socket. `nodes`, `presence`, `sessions` and `typing` look into a
    shared engine without one.
    """


@inspect.command()
@click.argument("name", metavar="USER")
@some_tenant_option
@json_option
@dashboard_options
def user(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Sessions, rooms, inbox, devices, watchers of USER: what each is, and when it ends."""
    _find(find_server, _named("user", name, tenant), as_json, inspect_view.user)


@inspect.command()
@click.argument("name", metavar="ROOM")
@some_tenant_option
@json_option
@dashboard_options
def room(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Members of ROOM, who is in it, who types and until when, and on which nodes it is listened to."""
    _find(find_server, _named("room", name, tenant), as_json, inspect_view.room)


@inspect.command()
@click.argument("name", metavar="NODE")
@json_option
@dashboard_options
def node(name: str, as_json: bool, find_server: Callable[[], Where]) -> None:
    """What NODE holds, how it is, and what is left of its lease."""
    _find(find_server, _named("node", name, None), as_json, inspect_view.node)


@inspect.command()
@click.argument("name", metavar="TOPIC")
@some_tenant_option
@json_option
@dashboard_options
def topic(name: str, tenant: str | None, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Who listens to TOPIC on each node, and what waits for them.

    TOPIC is room:ROOM, watch:USER for those who watch a user, or user:USER for the user's own devices.
    """
    kind, _, rest = name.partition(":")
    if kind not in KINDS or not rest:
        raise click.UsageError(f"A topic is written as {', '.join(f'{kind}:NAME' for kind in KINDS)}, not {name!r}.")
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
        of = f" in tenant {answer['tenant']}" if "tenant" in answer else ""
        says = "nobody listens to topic" if what == "topic" else f"nothing is known of {what}"
        raise ConfigError(f"{says} {name!r}{of}.")
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(lines(answer, now)))


async def _asked(at: Where, question: dict[str, Any]) -> tuple[dict[str, Any], int]:
    async with open_live(at) as live:
        return await live.ask(**question), live.now_ms()
