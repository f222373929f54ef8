"""Transport of plain sockets: input, output that waits, and the end."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from greendot.transport.plain_socket import AT_ONCE, PlainSocket, SocketPoller, SocketProtocol


class Recorder(SocketProtocol):
    """Protocol that records its callbacks. `keeps_open` is the answer to the end of the input."""

    def __init__(self, *, keeps_open: bool = False, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.data = b""
        self.keeps_open = keeps_open
        self.fails = fails
        self.error: Exception | None = None
        self.lost = asyncio.Event()

    read_size = 64

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def feed(self, data: bytes) -> None:
        self.data += data
        if self.fails:
            raise ValueError("a fault of the protocol")

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.error = exc
        self.lost.set()


class Pair:
    """Transport under test, its protocol, and the socket of its peer."""

    def __init__(self, poller: SocketPoller, protocol: Recorder) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.peer = socket.create_connection(listener.getsockname())
            descriptor, _ = listener._accept()  # type: ignore[attr-defined]
        self.peer.setblocking(False)
        os.set_blocking(descriptor, False)
        self.protocol = protocol
        self.transport = PlainSocket(poller, descriptor, protocol)
        self.transport.open()

    def fill(self) -> bytes:
        """Write until output waits; return all of it."""
        written = b""
        while not self.transport.get_write_buffer_size():
            written += (part := bytes(range(256)) * 256)
            self.transport.write(part)
        return written

    async def read(self, size: int) -> bytes:
        found = b""
        async with asyncio.timeout(20):
            while len(found) < size and (data := await asyncio.get_running_loop().sock_recv(self.peer, 1 << 20)):
                found += data
        return found

    async def end(self) -> None:
        self.transport.abort()
        await asyncio.wait_for(self.protocol.lost.wait(), 20)
        self.peer.close()


@asynccontextmanager
async def opened(protocol: Recorder | None = None) -> AsyncIterator[Pair]:
    poller = SocketPoller()
    pair = Pair(poller, protocol or Recorder())
    poller.retire()
    yield pair
    await pair.end()
    assert poller._epoll.closed  # retired, and without sockets


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not found():  # noqa: ASYNC110  (the loop must run meanwhile)
            await asyncio.sleep(0.001)


async def test_input_arrives_in_order_and_output_leaves_at_once() -> None:
    async with opened() as pair:
        pair.peer.send(b"x" * 100 + b"y" * 100)
        pair.transport.write(b"hello")
        assert pair.transport.get_write_buffer_size() == 0
        assert await pair.read(5) == b"hello"
        await until(lambda: pair.protocol.data == b"x" * 100 + b"y" * 100)
        assert pair.protocol.calls == ["made"]


async def test_a_paused_socket_is_not_read_until_it_resumes() -> None:
    async with opened() as pair:
        pair.transport.pause_reading()
        pair.peer.send(b"later")
        await asyncio.sleep(0.05)
        assert (pair.protocol.data, pair.transport.is_reading()) == (b"", False)
        pair.transport.resume_reading()
        await until(lambda: pair.protocol.data == b"later")


async def test_output_that_waits_pauses_the_protocol_and_arrives_complete() -> None:
    async with opened() as pair:
        pair.transport.set_write_buffer_limits(high=0)
        written = pair.fill()
        pair.transport.write(b"end")
        assert pair.protocol.calls == ["made", "pause"]
        assert await pair.read(len(written) + 3) == written + b"end"
        await until(lambda: pair.protocol.calls == ["made", "pause", "resume"])


async def test_a_limit_that_is_lowered_while_output_waits_pauses_the_protocol() -> None:
    async with opened() as pair:
        pair.transport.set_write_buffer_limits(high=1 << 30)
        pair.fill()
        assert pair.protocol.calls == ["made"]
        pair.transport.set_write_buffer_limits(high=0)
        assert pair.protocol.calls == ["made", "pause"]


async def test_close_writes_what_waits_and_nothing_new() -> None:
    async with opened() as pair:
        written = pair.fill()
        pair.transport.close()
        pair.transport.write(b"dropped")
        assert (pair.transport.is_closing(), pair.transport.is_reading()) == (True, False)
        assert await pair.read(len(written) + 1) == written
        await asyncio.wait_for(pair.protocol.lost.wait(), 20)


async def test_abort_drops_what_waits_and_reports_the_end_once_and_later() -> None:
    async with opened() as pair:
        pair.fill()
        pair.transport.abort()
        pair.transport.close()
        assert "lost" not in pair.protocol.calls
        await asyncio.wait_for(pair.protocol.lost.wait(), 20)
        assert pair.protocol.calls.count("lost") == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_write_eof_ends_the_output_after_what_waits_and_input_continues(waits: bool) -> None:
    async with opened() as pair:
        written = pair.fill() if waits else b""
        pair.transport.write_eof()
        pair.transport.write(b"dropped")
        assert await pair.read(len(written) + 1) == written
        pair.peer.send(b"still read")
        await until(lambda: pair.protocol.data == b"still read")


@pytest.mark.parametrize("keeps_open", [False, True])
async def test_the_end_of_the_input_closes_the_socket_unless_the_protocol_keeps_it(keeps_open: bool) -> None:
    async with opened(Recorder(keeps_open=keeps_open)) as pair:
        pair.peer.shutdown(socket.SHUT_WR)
        await until(lambda: "eof" in pair.protocol.calls)
        await asyncio.sleep(0.05)
        assert pair.protocol.calls == ["made", "eof"] + ([] if keeps_open else ["lost"])
        if keeps_open:
            pair.transport.write(b"answer")
            assert await pair.read(6) == b"answer"


async def test_a_reset_by_the_peer_is_reported_with_its_error() -> None:
    async with opened() as pair:
        pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        pair.peer.close()
        await asyncio.wait_for(pair.protocol.lost.wait(), 20)
        assert isinstance(pair.protocol.error, ConnectionResetError)


async def test_a_connection_that_was_reset_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        async with opened() as pair:
            pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            pair.peer.close()
            await asyncio.wait_for(pair.protocol.lost.wait(), 20)
            assert isinstance(pair.protocol.error, ConnectionResetError)
            ended, pair.protocol = weakref.ref(pair.protocol), Recorder()
            pair.protocol.lost.set()
            await asyncio.sleep(0)  # the task that waited for the end is over
            assert ended() is None
    finally:
        gc.enable()


async def test_a_reset_of_a_paused_socket_does_not_keep_the_loop_busy() -> None:
    async with opened() as pair:
        pair.transport.pause_reading()
        pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        pair.peer.close()
        await asyncio.sleep(0.02)
        assert pair.transport._poller._epoll.poll(0) == []
        pair.transport.write(b"fails")
        await asyncio.wait_for(pair.protocol.lost.wait(), 20)


async def test_a_fault_of_one_protocol_closes_its_socket_and_others_are_served() -> None:
    poller = SocketPoller()
    bad, good = Pair(poller, Recorder(fails=True)), Pair(poller, Recorder())
    bad.peer.send(b"x")
    good.peer.send(b"x")
    await asyncio.wait_for(bad.protocol.lost.wait(), 20)
    await until(lambda: good.protocol.data == b"x")
    assert "lost" not in good.protocol.calls
    await bad.end()
    await good.end()


async def test_a_turn_serves_a_bounded_number_of_sockets() -> None:
    poller = SocketPoller()
    pairs = [Pair(poller, Recorder()) for _ in range(AT_ONCE + 10)]
    for pair in pairs:
        pair.peer.send(b"x")
    poller._on_ready()
    assert sum(pair.protocol.data == b"x" for pair in pairs) == AT_ONCE
    await until(lambda: all(pair.protocol.data == b"x" for pair in pairs))
    for pair in pairs:
        await pair.end()


async def test_addresses_of_a_closed_socket_are_not_known() -> None:
    async with opened() as pair:
        assert pair.transport.get_extra_info("peername") == pair.peer.getsockname()
        assert pair.transport.get_extra_info("sockname") == pair.peer.getpeername()
        assert pair.transport.get_extra_info("sslcontext") is None
        await pair.end()
        assert pair.transport.get_extra_info("peername", "gone") == "gone"
