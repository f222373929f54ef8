"""Private names of picows that the server uses: each use is tested here."""

from __future__ import annotations

import asyncio
import logging

from greendot.testing import serving


async def test_idle_sockets_share_one_picows_parser_and_keep_nothing_of_the_handshake() -> None:
    loggers = set(logging.Logger.manager.loggerDict)
    async with serving() as served:
        for user in ("alice", "bob"):
            await served.client(user)
            (connection,) = served.node.registry.connections_of("default", user)
            assert connection.socket.get_protocol() is connection
            assert connection._parser is None
            assert not hasattr(connection, "__dict__")
        parsers = served.node.connections.parsers
        spare = parsers.spare()
        await (await served.client("carol")).request(type="activity")
        assert parsers.spare() is spare
        assert not hasattr(spare, "__dict__")
        assert not [name for name in set(logging.Logger.manager.loggerDict) - loggers if "picows" in name]


async def test_no_task_queue_or_loop_timer_belongs_to_an_idle_connection() -> None:
    async with serving() as served:
        await served.settle()  # the node's own work at its start
        tasks = len(asyncio.all_tasks())
        clients = [await served.client(f"user{number}") for number in range(50)]
        await served.settle()
        for client in clients:
            await client.quiet()
        assert len(asyncio.all_tasks()) == tasks
        assert served.timers == 50 + 1  # one timer for all inboxes
        for connection in served.node.registry.connections.values():
            assert connection.waiting is None
            assert not connection.behind


async def test_a_descriptor_is_not_written_to_once_its_connection_has_ended() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        (connection,) = served.node.registry.connections_of("default", "alice")
        assert connection.direct == connection.fd >= 0
        await alice.reset()
        await served.until_gone()
        assert connection.direct == connection.fd == -1
        connection.send(b"nothing")
        connection.flush()
