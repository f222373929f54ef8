"""State of an idle connection."""

from __future__ import annotations

import asyncio

from greendot.testing import serving


async def test_idle_sockets_share_one_read_buffer_and_keep_nothing_of_the_handshake() -> None:
    async with serving() as served:
        for user in ("alice", "bob"):
            await served.client(user)
            (connection,) = served.node.registry.connections_of("default", user)
            assert connection.socket.get_protocol() is connection
            assert connection.get_buffer(-1) is served.node.connections.read_buffer
            assert not connection._rest
            assert not hasattr(connection, "__dict__")


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
