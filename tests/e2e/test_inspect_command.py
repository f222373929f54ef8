"""`greendot inspect` and `greendot disconnect`: users, rooms, nodes, topics and ended sessions."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner, Result

from e2e.test_dashboard import KEY, ON, make
from greendot.cli import cli
from greendot.errors import GreendotError
from greendot.store.api_keys import OPERATOR
from greendot.store.inbox import Notice
from greendot.store.push import Device
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY

PUSHING: dict[str, Any] = {"enabled": True, "dry_run": True, "in_server": False}


async def command(served: Served, *arguments: str, key: str = KEY) -> Result:
    """Run the command in a thread: the server runs in this one."""
    # Without a data folder the command finds no dev server's key.
    given = {"GREENDOT_API_KEY": key, "GREENDOT_SERVER_DATA_DIR": "/dev/null/greendot"}
    url = f"http://127.0.0.1:{served.port}"
    return await asyncio.to_thread(CliRunner(env=given).invoke, cli, [*arguments, "--url", url])


async def said(served: Served, *arguments: str, key: str = KEY) -> str:
    result = await command(served, *arguments, key=key)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


async def shown(served: Served, *arguments: str, key: str = KEY) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(await said(served, *arguments, "--json", key=key))
    return data


async def refused(served: Served, *arguments: str, key: str = KEY) -> str:
    """Return the one-line error of a command that ends with exit code 2."""
    result = await command(served, *arguments, key=key)
    if isinstance(result.exception, GreendotError):
        assert "\n" not in str(result.exception)
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.output


def table(text: str, first: str) -> list[dict[str, str]]:
    """Return the rows of the table whose head begins with this column."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(first))
    names = [found.group() for found in re.finditer(r"\S+(?: \S+)*", lines[at])]
    places = [found.start() for found in re.finditer(r"\S+(?: \S+)*", lines[at])] + [10_000]
    rows = []
    for line in lines[at + 1 :]:
        if not line:
            break
        cells = [line[begin:end].strip() for begin, end in pairwise(places)]
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


# --- inspect ---


async def test_a_user_is_shown_with_all_that_is_theirs_and_when_each_of_it_ends() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        now = served.clock.now_ms()
        await served.node.store.put_device(Device("default", "ann", "phone", "fcm", "a token", now, now))
        ann = await served.joined("ann", device="laptop")
        lost = await served.client("ann", device="tablet")
        bob = await served.joined("bob")
        await bob.request(type="watch", users=["ann"])
        await ann.request(type="status.set", status="busy", until=now + 3_600_000, text="on \x1b[31mair")
        ann.send(type="typing.start", room="lobby")
        await ann.quiet()
        await lost.reset()
        await served.until_gone(2)
        await served.advance(2)
        text = await said(served, "inspect", "user", "ann")
        assert text.startswith("ann, Ann (tenant default) is busy, since ")
        assert "status     busy, “on �[31mair”, ends in 59 min" in text
        assert "watchers   1, changes are delivered at once" in text
        assert "typing in  lobby (ends in 3 s)" in text
        assert "inbox      no notifications yet" in text
        sessions = {row["DEVICE"]: row for row in table(text, "SESSION")}
        assert (sessions["laptop"]["STATE"], sessions["laptop"]["ENDS IN"]) == ("online", "–")
        assert (sessions["tablet"]["STATE"], sessions["tablet"]["ENDS IN"]) == ("lingering", "28 s")
        assert sessions["laptop"]["TOKEN EXPIRES IN"] == "23 h"
        assert (sessions["laptop"]["ROOMS"], sessions["laptop"]["WATCHES"]) == ("1", "0")
        (lease,) = table(text, "NODE  ")
        assert (lease["STATE"], lease["SESSIONS END IN"]) == ("live", "–")
        (device,) = table(text, "PUSH DEVICE")
        assert (device["PUSH DEVICE"], device["PROVIDER"], device["REMOVED IN IF UNUSED"]) == ("phone", "fcm", "59 d")

        found = await shown(served, "inspect", "user", "ann")
        assert "a token" not in text + json.dumps(found)
        assert found["typing"] == [{"room": "lobby", "expires_in_ms": 3_000}]
        assert found["watchers"] == {"count": 1, "told": "live"}


async def test_who_is_away_is_shown_with_when_that_is_forgotten_and_pushes_that_wait() -> None:
    async with serving(admin=ON, push=PUSHING) as served:
        ann = await served.client("ann")
        ann.send(type="bye")
        await ann.closed()
        await served.until_gone()
        await served.advance(5)
        notice = Notice("default", "ann", "order", b"{}", "", served.clock.now_ms())
        await served.node.inbox_service.notify([notice])
        text = await said(served, "inspect", "user", "ann")
        assert text.startswith("ann, Ann (tenant default) is offline")
        assert "last seen  5 s ago; removed in 29 d" in text
        await served.node.store.put_last_seen({("default", "eve"): served.clock.now_ms() - 480_000})
        assert "last seen  8 min ago; removed in 29 d" in await said(served, "inspect", "user", "eve")
        assert "inbox      1 unread, 1 unseen, newest number 1; kept for 90 d" in text
        assert "No sessions." in text
        (push,) = table(text, "NOTIFICATION")
        assert (push["NOTIFICATION"], push["ATTEMPTS"], push["REASON"]) == ("1", "0", "new")


async def test_a_room_is_shown_with_who_is_there_and_until_when_they_type() -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("default", "den", open=False)
        for user, role in (("ann", "admin"), ("bob", "reader")):
            await served.node.store.put_member("default", "den", user, role)  # type: ignore[arg-type]
        ann = await served.joined("ann", "den")
        await served.joined("bob", "den")
        ann.send(type="typing.start", room="den")
        await ann.quiet()
        await served.advance(1)
        text = await said(served, "inspect", "room", "den")
        assert text.startswith("den (tenant default) is for members only, bus ")
        assert "occupants  2, with 2 connections" in text
        assert table(text, "TYPING") == [{"TYPING": "ann", "ENDS IN": "4 s"}]
        assert table(text, "NODE") == [{"NODE": served.node.incarnation, "SUBSCRIBERS": "2"}]
        assert table(text, "MEMBER") == [{"MEMBER": "ann", "ROLE": "admin"}, {"MEMBER": "bob", "ROLE": "reader"}]


async def test_a_node_is_shown_with_its_lease_and_what_it_holds() -> None:
    async with serving(admin=ON) as served:
        await served.lobby()
        await served.joined("ann")
        await served.client("bob", claims={"tenant": "acme"})
        await served.socket()
        name = served.node.incarnation
        text = await said(served, "inspect", "node", name)
        assert re.match(rf"Node {name} is live, load normal. Its lease ends in \d+ s unless renewed.", text)
        assert "sockets    3, 1 of them without a hello yet" in text
        assert "sessions   2, 0 of them lingering" in text
        assert "topics     1 room, 0 watched users" in text
        assert {row["TENANT"]: row["CONNECTIONS"] for row in table(text, "TENANT")} == {"acme": "1", "default": "1"}
        assert "ws_connections" in text
        # The operator's key belongs to no tenant and shows none.
        operator = await make(served, "operator", tenant=OPERATOR)
        assert (await shown(served, "inspect", "node", name, key=operator))["tenants"] == {}
        assert "acme" not in await said(served, "inspect", "node", name, key=API_KEY)


async def test_a_topic_is_shown_with_its_delivery_and_the_time_of_its_removal() -> None:
    async with serving(admin=ON, presence={"celebrity_watchers": 2, "celebrity_polling": 3}) as served:
        for number in range(4):
            client = await served.client(f"fan{number}")
            await client.request(type="watch", users=["star"])
        (row,) = table(await said(served, "inspect", "topic", "watch:star"), "NODE")
        assert (row["SUBSCRIBERS"], row["DELIVERY"], row["STATE"]) == ("4", "polled", "in use")
        await client.request(type="watch", users=["nobody"])
        await client.request(type="unwatch", users=["nobody"])
        await served.advance(2)
        (row,) = table(await said(served, "inspect", "topic", "watch:nobody"), "NODE")
        assert (row["SUBSCRIBERS"], row["STATE"], row["REMOVED IN"]) == ("0", "unused", "3 s")
        assert "has 1 subscriber" in await said(served, "inspect", "topic", "user:fan0")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (("user", "nobody"), "no data found for user 'nobody' in tenant default."),
        (("room", "nowhere"), "no data found for room 'nowhere' in tenant default."),
        (("room", "den", "--tenant", "acme"), "no data found for room 'den' in tenant acme."),
        (("node", "Zzzz"), "no data found for node 'Zzzz'."),
        (("topic", "room:nowhere"), "no subscribers found for topic 'room:nowhere' in tenant default."),
        (("topic", "nowhere"), "TOPIC must be room:NAME or watch:NAME or user:NAME, not 'nowhere'."),
        (("user", "a b"), "user 'a b' is not a valid id"),
    ],
    ids=lambda it: it[1] if isinstance(it, tuple) else "",
)
async def test_inspection_of_unknown_data_is_refused_with_the_reason(what: tuple[str, ...], says: str) -> None:
    async with serving(admin=ON) as served:
        await served.node.store.put_room("default", "den", open=True)
        assert says in await refused(served, "inspect", *what)


async def test_a_tenants_key_finds_nothing_of_others() -> None:
    async with serving(admin=ON) as served:
        await served.client("ann")
        key = await make(served, "admin")  # of tenant acme
        assert "no data found for user 'ann' in tenant acme." in await refused(
            served, "inspect", "user", "ann", key=key
        )
        for what in (("user", "ann"), ("room", "den"), ("topic", "watch:ann")):
            refusal = await refused(served, "inspect", *what, "--tenant", "default", key=key)
            assert "this key is for the tenant 'acme' only" in refusal
        refusal = await refused(served, "inspect", "node", served.node.incarnation, key=key)
        assert "this key is for a tenant" in refusal
        operator = await make(served, "operator", tenant=OPERATOR)
        assert "this key is for nodes only" in await refused(served, "inspect", "user", "ann", key=operator)


async def test_a_server_without_a_dashboard_and_a_missing_key_are_named_with_what_to_do() -> None:
    async with serving() as served:
        assert "Set admin.enabled" in await refused(served, "inspect", "user", "ann")
        assert "no key for the server's dashboard found" in await refused(served, "inspect", "user", "ann", key="")
    assert "no server answers at" in await refused(served, "inspect", "user", "ann")


# --- disconnect ---


async def closed_with(client: WireClient) -> tuple[int, str]:
    closed = await client.closed()
    return closed.code, closed.reason


async def test_a_session_is_disconnected_and_its_token_still_lets_it_in() -> None:
    async with serving(admin=ON) as served:
        ann, other = await served.client("ann"), await served.client("ann")
        session = ann.welcome["session"]
        assert await said(served, "disconnect", "--session", session) == "1 session disconnected (4503).\n"
        assert await closed_with(ann) == (4503, "disconnected by the operator")
        assert await other.quiet() == []
        await served.client("ann")
        assert f"no connected session found for session '{session}'" in await refused(
            served, "disconnect", "--session", session
        )


async def test_many_sessions_are_disconnected_only_with_a_confirmation() -> None:
    async with serving(admin=ON) as served:
        devices = [await served.client("ann", device=name) for name in ("laptop", "phone")]
        bob = await served.client("bob")
        refusal = await refused(served, "disconnect", "--user", "ann")
        assert "2 sessions of ann will be closed with 4503 on every node" in refusal
        assert refusal.endswith("To confirm, add --yes.")
        assert await devices[0].quiet() == []
        done = await shown(served, "disconnect", "--user", "ann", "--yes", "--code", "4000", "--reason", "moving house")
        assert done == {"done": "2 sessions disconnected (4000)", "count": 2}
        assert [await closed_with(device) for device in devices] == [(4000, "moving house")] * 2
        assert await bob.quiet() == []


async def test_all_sessions_of_a_node_are_disconnected_with_a_retry_time() -> None:
    async with serving(admin=ON) as served:
        here = ("--node", served.node.incarnation)
        own, others = [await served.client("ann"), await served.client("bob")], []
        others.append(await served.client("carl", claims={"tenant": "acme"}))
        # A tenant's key closes the sessions of that tenant only.
        assert f"2 sessions on node {here[1]} of tenant default" in await refused(
            served, "disconnect", *here, key=API_KEY
        )
        assert (await shown(served, "disconnect", *here, "--yes", "--code", "4000", key=API_KEY))["count"] == 2
        for client in own:
            assert (await client.receive("drain"))["data"]["retry_in_ms"] >= 500
            assert (await client.closed()).code == 4000
        assert await others[0].quiet() == []
        await served.until_gone(1)
        await served.client("dora")
        assert (await shown(served, "disconnect", *here, "--yes"))["count"] == 2
        assert (await others[0].closed()).code == 4503
        assert "there is no live node 'Zzzz'" in await refused(served, "disconnect", "--node", "Zzzz", "--yes")
        boss = await make(served, "admin")
        assert "this key is for a tenant" in await refused(served, "disconnect", *here, "--yes", key=boss)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Give exactly one of --session, --user and --node."),
        (("--user", "ann", "--node", "n"), "Give exactly one of --session, --user and --node."),
        (("--user", "ann", "--reason", "x" * 31), "at most 30 characters"),
        (("--user", "ann", "--code", "4501"), "4501"),
        (("--user", "nobody"), "no connected session found for user 'nobody'"),
    ],
)
async def test_an_invalid_disconnect_command_is_refused_with_the_reason(arguments: tuple[str, ...], says: str) -> None:
    async with serving(admin=ON) as served:
        assert says in await refused(served, "disconnect", *arguments)
