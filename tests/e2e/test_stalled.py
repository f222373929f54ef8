"""Client that stops reading: its memory in this process and in the kernel, and the effect on others."""

from __future__ import annotations

from pathlib import Path

from e2e.narrow import Peer, connection_of, peer
from greendot.node.session import Connection
from greendot.testing import Served, WireClient, serving
from greendot.transport.listener import SEND_BUFFER
from greendot.transport.send_buffer_model import MAX_RECORD_BYTES, MAX_SIGNAL_BYTES

FRAME = 64 * 1024
KERNEL = 2 * SEND_BUFFER  # the kernel doubles the configured size


def in_kernel(port: int, slow: Peer) -> int:
    """Return the unacknowledged bytes in the kernel's send queue of the client's socket."""
    mine = slow._writer.get_extra_info("sockname")[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        here, there, _, queues = line.split()[1:5]
        if (int(here[-4:], 16), int(there[-4:], 16)) == (port, mine):
            return int(queues.split(":")[0], 16)
    raise AssertionError("the socket does not exist")


def waiting(connection: Connection) -> tuple[int, int, int]:
    """Return the bytes of records and signals in the send buffer, and in the transport's buffer."""
    outbox = connection._outbox
    records, signals = (outbox.record_bytes, outbox.signal_bytes) if outbox is not None else (0, 0)
    return records, signals, connection.socket.get_write_buffer_size()


async def test_kernel_loop_and_outbox_are_bounded_for_a_reader_that_stops_until_it_is_closed_and_recovers() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        connection = connection_of(served, "alice")
        sent, most = 0, (0, 0, 0)
        while not connection.closing:
            sent += 1
            assert sent < 300
            await speaker.request(type="room.send", room="lobby", body="x" * 10_000)
            most = tuple(map(max, most, waiting(connection)))  # type: ignore[assignment]
            assert in_kernel(served.port, slow) <= KERNEL
        assert MAX_RECORD_BYTES - FRAME < most[0] <= MAX_RECORD_BYTES
        assert most[2] <= FRAME
        slow.go_on_reading()
        assert (await slow.closed()).code == 4001
        back = await served.client("alice", resume={"session": slow.welcome["session"], "rooms": {"lobby": 0}})
        assert [frame["data"]["seq"] for frame in await back.quiet()] == [*range(1, sent + 1)]


async def test_signals_for_a_reader_that_stops_are_bounded_in_bytes_however_many_keys_they_have() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await signalled(speaker, range(200))
        connection = connection_of(served, "alice")
        records, signals, loop = waiting(connection)
        assert records == 0
        assert MAX_SIGNAL_BYTES - FRAME < signals <= MAX_SIGNAL_BYTES
        assert loop <= FRAME
        assert in_kernel(served.port, slow) <= KERNEL
        assert not connection.closing
        assert served.node.metrics.realtime_dropped_ephemeral_total > 100


async def signalled(speaker: WireClient, numbers: range) -> None:
    for number in numbers:
        body = "x" * 30_000
        await speaker.request(type="signal.send", room="lobby", kind="n", key=f"k{number}", body=body)


async def test_frames_of_one_tick_for_a_stopped_reader_are_kept_or_dropped_one_by_one() -> None:
    """The frames of one tick may exceed the send buffer. Then signals are dropped; the client is not closed."""
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        slow = await peer(served, "alice", "lobby")
        slow.stop_reading()
        connection = connection_of(served, "alice")
        offer(served, 100)
        served.node.hub.flush()
        records, signals, loop = waiting(connection)
        assert (records, connection.closing) == (0, False)
        assert signals <= MAX_SIGNAL_BYTES
        assert loop <= FRAME
        assert served.node.metrics.realtime_dropped_ephemeral_total > 50


def offer(served: Served, count: int) -> None:
    channels = [pair for some in served.node.hub._channels.steps(1) for pair in some]
    (channel,) = [channel for topic, channel in channels if topic.kind == "room"]
    for number in range(count):
        served.node.hub.offer(channel, b"\x81\x7e\x9c\x40" + b"%05d" % number * 8_000, key=("n", number))
