"""Commands for operators, which read the store directly: `greendot rooms` and `greendot inbox`."""

from __future__ import annotations

import click
import msgspec
from msgspec import Raw, Struct

from greendot.cli._options import (
    after_option,
    check_ids,
    json_option,
    limit_option,
    print_json,
    print_next_page,
    tenant_option,
)
from greendot.cli._store import StoreAccess, store_options
from greendot.cli._tables import NOTHING, ago, several, shortened, table
from greendot.clock import SystemClock
from greendot.errors import ConfigError
from greendot.store.inbox import Filter, Notification
from greendot.store.port import Store
from greendot.store.rooms import BusMode, Member, Room

MOST_SHOWN = 60  # characters of a body in a table


class RoomInfo(Struct, frozen=True):
    """Room, under the names of the HTTP API."""

    room: str
    open: bool
    head: int
    bus: BusMode
    members: int


@click.command()
@click.argument("room", required=False)
@tenant_option
@after_option
@limit_option
@json_option
@store_options
def rooms(room: str | None, tenant: str, after: str | None, limit: int, as_json: bool, access: StoreAccess) -> None:
    """List the rooms, or the members of ROOM with their roles."""
    check_ids("room", () if room is None else (room,), tenant)
    if room is not None:
        info, members = access.run(lambda store: _room(store, tenant, room, after, limit))
        _show_room(info, members, limit, as_json)
        return
    found = access.run(lambda store: _rooms(store, tenant, after, limit))
    if as_json:
        print_json({"rooms": found})
    elif not found:
        click.echo("There are no rooms." if after is None else "There are no more rooms.")
    else:
        rows = [
            (room.room, str(room.head), str(room.members), "open" if room.open else "members", room.bus)
            for room in found
        ]
        click.echo(table(("ROOM", "MESSAGES", "MEMBERS", "ACCESS", "BUS"), rows))
        print_next_page(len(found), limit, found[-1].room)


def _show_room(info: RoomInfo, members: list[Member], limit: int, as_json: bool) -> None:
    if as_json:
        shown = [{"user": member.user, "role": member.role} for member in members]
        print_json({"room": info.room, "open": info.open, "head": info.head, "bus": info.bus, "members": shown})
        return
    whom = "open to all users" if info.open else "for members only"
    counts = f"{several(info.head, 'message')}, {several(info.members, 'member')}"
    click.echo(f"{info.room} is {whom}: {counts}, bus mode {info.bus}.")
    if members:
        click.echo(table(("USER", "ROLE"), members))
        print_next_page(len(members), limit, members[-1].user)


async def _rooms(store: Store, tenant: str, after: str | None, limit: int) -> list[RoomInfo]:
    found = await store.rooms(tenant, after, limit)
    counts = await store.member_counts([(tenant, room.room) for room in found])
    return [_info(room, counts.get((tenant, room.room), 0)) for room in found]


async def _room(store: Store, tenant: str, name: str, after: str | None, limit: int) -> tuple[RoomInfo, list[Member]]:
    found = await store.member_page(tenant, name, after, limit)
    if found is None:
        raise ConfigError(f"room {name!r} not found. List the rooms with: greendot rooms")
    return _info(found.room, found.total), found.members


def _info(room: Room, members: int) -> RoomInfo:
    return RoomInfo(room.room, room.open, room.head, room.bus, members)


@click.command()
@click.argument("user")
@tenant_option
@click.option(
    "--only",
    type=click.Choice(["all", "unread", "unseen", "archived"]),
    default="all",
    show_default=True,
    help="Notifications to show; `all` leaves out archived ones.",
)
@click.option("--before", type=int, metavar="N", help="Only notifications before number N.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Show at most N.")
@json_option
@store_options
def inbox(
    user: str, tenant: str, only: Filter, before: int | None, limit: int, as_json: bool, access: StoreAccess
) -> None:
    """List the newest notifications of USER with their states."""
    check_ids("user", (user,), tenant)
    found, state = access.run(lambda store: store.inbox_page(tenant, user, before=before, limit=limit, only=only))
    if as_json:
        entries = [msgspec.structs.asdict(entry) | {"body": Raw(entry.body)} for entry in found]
        for entry in entries:
            del entry["traceparent"]  # left out, as in the HTTP API
        print_json({"notifications": entries, **state._asdict()})
        return
    if not state.head:
        click.echo(f"{user} has no notifications yet.")
        return
    click.echo(
        f"{user} has {state.unread} unread, {state.unseen} unseen notifications; the newest is number {state.head}."
    )
    if found:
        now = SystemClock().now_ms()
        rows = [
            (
                str(entry.seq),
                entry.kind,
                ago(entry.created_at, now),
                _states(entry),
                shortened(entry.body.decode(), MOST_SHOWN),
            )
            for entry in found
        ]
        click.echo(table(("NUMBER", "KIND", "CREATED", "STATE", "BODY"), rows))
        if len(found) == limit and found[0].seq > 1:
            click.echo(f"For older notifications: --before {found[0].seq}")


def _states(entry: Notification) -> str:
    """Return what happened to a notification, in the usual order."""
    happened = (
        ("live", entry.live_at),
        ("pushed", entry.push_at),
        ("seen", entry.seen_at),
        ("read", entry.read_at),
        ("acked", entry.acked_at),
        ("archived", entry.archived_at),
    )
    return ", ".join(word for word, at in happened if at is not None) or NOTHING
