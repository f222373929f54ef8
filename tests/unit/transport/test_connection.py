"""One connection: output of a tick, a slow socket, frames that are held or dropped, and the ways to end."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import cast

from greendot.node.session import Connection
from greendot.presence.grace_model import EndCause
from greendot.protocol.codec import close_frame, encode_event, pong_frame, text_frame
from greendot.protocol.codes import Close
from greendot.protocol.events import HeartbeatAck, Refresh
from greendot.protocol.versions import EventVersions
from greendot.transport.connection import CLOSE_WAIT_S
from greendot.transport.send_buffer_model import MAX_RECORD_BYTES, MAX_SIGNAL_BYTES
from unit.node_parts import Client, NodeParts, RecordingOwner, RecordingSocket, in_virtual_time, pass_time, settle

KIB = 1024


def frame(name: str, size: int = 0) -> bytes:
    return text_frame(b'{"type":"%b","pad":"%b"}' % (name.encode(), b"x" * size))


async def names(client: Client) -> list[str]:
    return [found["type"] for found in await client.frames()]


def owner(parts: NodeParts) -> RecordingOwner:
    assert isinstance(parts.owner, RecordingOwner)
    return parts.owner


# --- output ---


@in_virtual_time
async def test_frames_of_one_tick_are_one_write(parts: NodeParts) -> None:
    client = parts.client()
    written: list[bytes] = []
    client.socket.write = written.append  # type: ignore[method-assign]
    for name in "abc":
        client.connection.send(frame(name))
    assert written == []
    await settle()
    assert written == [frame("a") + frame("b") + frame("c")]


@in_virtual_time
async def test_while_the_socket_is_behind_records_wait_in_order_and_of_signals_the_latest(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("begun"))
    await settle()
    assert client.connection.behind
    for version in ("s1", "s2"):
        client.connection.send(frame(version), record=False, key="s")
        client.connection.send(frame(f"r{version}"))
    assert (await names(client), client.connection.unsent > 0) == ([], True)
    client.socket.drain()
    assert await names(client) == ["begun", "rs1", "rs2", "s2"]
    assert (owner(parts).coalesced, client.connection.behind) == ([frame("s1")], False)


@in_virtual_time
async def test_a_client_that_is_too_slow_for_its_records_is_closed(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("begun"))
    await settle()
    part = frame("r", 100 * KIB)
    for _ in range(MAX_RECORD_BYTES // len(part)):
        client.connection.send(part)
    assert not client.connection.closing
    client.connection.send(part)
    assert owner(parts).ends == [(EndCause.SERVER_CLOSE, Close.TOO_SLOW)]
    client.socket.drain()
    assert await names(client) == ["begun", "close"]


@in_virtual_time
async def test_signals_beyond_the_bound_are_dropped_and_counted_and_the_client_stays(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("begun"))
    await settle()
    part = frame("s", 100 * KIB)
    for number in range(12):
        client.connection.send(part, record=False, key=number)
    kept = MAX_SIGNAL_BYTES // len(part)
    assert (len(owner(parts).dropped), client.connection.closing) == (12 - kept, False)
    assert owner(parts).slow_count == 1


@in_virtual_time
async def test_what_is_held_comes_behind_what_the_client_missed(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.send(frame("before"))
    client.connection.hold()
    client.connection.send(frame("live"))
    client.connection.send(frame("typing"), record=False, key="t")
    assert await names(client) == ["before"]
    client.connection.release([(frame("welcome"), None), (frame("missed"), None)])
    client.connection.send(frame("after"))
    assert await names(client) == ["welcome", "missed", "live", "typing", "after"]


@in_virtual_time
async def test_frames_of_a_key_are_dropped_wherever_they_wait(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.send(frame("out-a"), key="a")
    client.connection.send(frame("out-b"), key="b")
    assert client.connection.drop(lambda key: key == "a") == ["a"]
    client.socket.full = True
    await settle()
    client.connection.send(frame("wait-a"), key="a")
    client.connection.send(frame("signal-a"), record=False, key="a")
    client.connection.send(frame("wait-b"), key="b")
    assert client.connection.drop(lambda key: key == "a") == ["a", "a"]
    client.socket.drain()
    assert await names(client) == ["out-b", "wait-b"]
    client.connection.hold()
    client.connection.send(frame("held-a"), key="a")
    client.connection.send(frame("held-b"), key="b")
    client.connection.drop(lambda key: key == "a")
    client.connection.release([])
    assert await names(client) == ["held-b"]


@in_virtual_time
async def test_a_flood_of_pings_is_answered_with_the_last_one(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("begun"))
    await settle()
    for number in range(100):
        client.connection.on_ping(b"%d" % number)
    client.socket.drain()
    await settle()
    assert client.socket.taken == frame("begun") + pong_frame(b"99")


@in_virtual_time
async def test_an_event_that_the_client_cannot_read_is_not_sent_and_reported(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.dialect = EventVersions({HeartbeatAck.type: 0})
    client.connection.send(encode_event(HeartbeatAck(), 1))
    client.connection.send(encode_event(Refresh("inbox"), 1))
    assert await names(client) == ["refresh"]
    assert owner(parts).unread_types == [HeartbeatAck.type]


# --- the end ---


@in_virtual_time
async def test_a_close_sends_what_was_collected_and_the_last_word_and_nothing_after(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.send(frame("said"))
    client.connection.close(Close.DRAINING, "bye", frame("drain"))
    client.connection.send(frame("late"))
    client.connection.close(Close.OVERLOADED)
    assert await client.frames() == [
        {"type": "said", "pad": ""},
        {"type": "drain", "pad": ""},
        {"type": "close", "code": Close.DRAINING, "reason": "bye"},
    ]
    assert owner(parts).ends == [(EndCause.SERVER_CLOSE, Close.DRAINING)]


@in_virtual_time
async def test_a_peer_that_does_not_answer_a_close_is_cut_off_after_a_while(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.close(Close.NORMAL)
    await pass_time(CLOSE_WAIT_S - 0.1)
    assert owner(parts).gone_count == 0
    await pass_time(0.2)
    assert owner(parts).gone_count == 1


@in_virtual_time
async def test_a_slow_client_gets_the_reason_of_a_close_and_not_what_waited(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("begun"))
    await settle()
    client.connection.send(frame("waits"))
    client.connection.close(Close.OVERLOADED, "", frame("overloaded"))
    client.socket.drain()
    assert await names(client) == ["begun", "overloaded", "close"]


@in_virtual_time
async def test_a_revoked_client_gets_nothing_but_the_close(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.send(frame("secret"))
    client.connection.revoke("revoked")
    assert await names(client) == ["close"]
    assert owner(parts).ends == [(EndCause.SERVER_CLOSE, Close.REVOKED)]


@in_virtual_time
async def test_a_revoked_client_whose_frames_are_encrypted_already_is_cut_off(parts: NodeParts) -> None:
    client = parts.client()
    client.socket.full = True
    client.connection.send(frame("secret"))
    await settle()
    client.connection.revoke("revoked")
    await settle()
    assert (owner(parts).gone_count, bytes(client.socket.taken)) == (1, b"")


@in_virtual_time
async def test_the_owner_is_notified_of_the_end_and_of_the_lost_socket_once_each(parts: NodeParts) -> None:
    client = parts.client()
    client.connection.bye_received()
    assert (owner(parts).ends, owner(parts).gone_count) == ([(EndCause.BYE, Close.NORMAL)], 0)
    client.connection.on_eof()
    client.answer_close()
    client.cut()
    await settle()
    assert (len(owner(parts).ends), owner(parts).gone_count) == (1, 1)


@in_virtual_time
async def test_a_close_of_the_client_is_answered_with_its_code(parts: NodeParts) -> None:
    client, nameless = parts.client(), parts.client()
    client.connection.on_client_close(4999)
    nameless.connection.on_client_close(0)
    await settle()
    assert (bytes(client.socket.taken), bytes(nameless.socket.taken)) == (close_frame(4999), close_frame(1000))
    assert owner(parts).ends == [(EndCause.CLIENT_CLOSE, 4999), (EndCause.CLIENT_CLOSE, 0)]


@in_virtual_time
async def test_a_socket_that_is_gone_without_a_word_is_lost(parts: NodeParts) -> None:
    client, half_open = parts.client(), parts.client()
    client.cut()
    half_open.connection.on_eof()
    await settle()
    assert (owner(parts).ends, owner(parts).gone_count) == ([(EndCause.LOST, 0)] * 2, 1)
    await pass_time(CLOSE_WAIT_S + 0.1)
    assert owner(parts).gone_count == 2


# --- a plain socket ---


class PlainSocket(RecordingSocket):
    """Transport of a plain socket. Waiting data goes to the descriptor when the socket is drained."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self.full = True

    def empty(self) -> None:
        """Write waiting data and let the connection continue."""
        os.write(self._fd, bytes(self.waiting))
        self.waiting.clear()
        assert self.connection is not None
        self.connection.resume_writing()


class Plain:
    """Connection over one end of a socket pair with a small buffer."""

    def __init__(self, parts: NodeParts) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.connection = Connection(parts.owner, "n/1")
        self.socket = PlainSocket(self.ours.fileno())
        self.socket.connection = self.connection
        self.connection.socket = cast(asyncio.Transport, self.socket)
        self.connection.fd = self.ours.fileno()
        self.connection.on_connected()

    def read(self) -> bytes:
        found = bytearray()
        try:
            while data := self.theirs.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        return bytes(found)

    def close(self) -> None:
        self.connection.fd = self.connection.direct = -1
        self.ours.close()
        self.theirs.close()


@in_virtual_time
async def test_frames_collected_between_a_write_of_the_hub_and_its_stall_follow_in_order(parts: NodeParts) -> None:
    """The hub writes to all sockets before it handles stalls. Handling one can make the node send to another."""
    plain = Plain(parts)
    waiting = frame("waiting", 6 * KIB)
    sent = os.write(plain.ours.fileno(), waiting)
    assert 0 < sent < len(waiting)
    collected = frame("collected")
    plain.connection.send(collected)
    plain.connection.stall([(waiting, True, None)], sent)
    received = plain.read()  # the kernel would take the collected frame now, before the rest of the first one
    await settle()
    while plain.connection.behind:
        received += plain.read()
        plain.socket.empty()
    received += plain.read()
    assert received == waiting + collected
    plain.close()


@in_virtual_time
async def test_bytes_that_the_kernel_does_not_take_follow_in_order(parts: NodeParts) -> None:
    plain = Plain(parts)
    frames = [frame(f"r{number}", KIB) for number in range(40)]
    for each in frames:
        plain.connection.send(each)
    await settle()
    assert (plain.connection.behind, plain.connection.direct) == (True, -1)
    late = frame("late", KIB)
    plain.connection.send(late)
    received = b""
    while plain.connection.behind:
        received += plain.read()
        plain.socket.empty()
    received += plain.read()
    assert received == b"".join([*frames, late])
    assert plain.connection.direct == plain.ours.fileno()
    plain.close()


@in_virtual_time
async def test_a_frame_that_was_begun_is_finished_and_those_behind_it_can_be_dropped(parts: NodeParts) -> None:
    plain = Plain(parts)
    for number in range(40):
        plain.connection.send(frame(f"r{number}", KIB), key=number)
    await settle()
    dropped = plain.connection.drop(lambda key: True)
    assert dropped == [*range(40 - len(dropped), 40)]
    received = plain.read()
    plain.socket.empty()
    received += plain.read()
    assert received == b"".join(frame(f"r{number}", KIB) for number in range(40 - len(dropped)))
    plain.close()


@in_virtual_time
async def test_a_broken_socket_is_counted_and_ends(parts: NodeParts) -> None:
    plain = Plain(parts)
    plain.theirs.close()
    plain.connection.send(frame("lost"))
    await settle()
    assert (owner(parts).failed_count, owner(parts).ends, owner(parts).gone_count) == (1, [(EndCause.LOST, 0)], 1)
    plain.close()
