"""Private names of picows that the server uses: each use is tested here."""

from __future__ import annotations

import asyncio
import logging

from greendot.testing import serving


async def test_an_upgraded_socket_is_picows_own_and_keeps_nothing_of_the_handshake() -> None:
    loggers = set(logging.Logger.manager.loggerDict)
    async with serving() as served:
        await served.client("alice")
        (connection,) = served.node.registry.connections_of("default", "alice")
        transport = connection.transport
        assert type(connection.socket.get_protocol()).__name__ == "UpgradedProtocol"
        await served.client("bob")
        (other,) = served.node.registry.connections_of("default", "bob")
        assert transport.response is other.transport.response
        assert transport.request.headers is other.transport.request.headers
        assert not hasattr(connection.socket.get_protocol(), "__dict__")
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
