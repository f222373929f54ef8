"""Frames as raw bytes, several per packet: replies, their order, and the end of the TCP connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.narrow import connection_of, upgrade
from e2e.processes import until
from greendot.node.session import Connection
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Resync
from greendot.testing import Served, hold, serving
from greendot.testing.wire import CLOSE, PING, PONG, TEXT, make_frame
from greendot.transport.websocket import IGNORED, READ
from redis_servers.tls import certificates

CONTINUATION, BINARY = 0x0, 0x2
AT_ONCE_S = 10.0  # real seconds; the server's own timeouts use a virtual clock that does not advance
ACTIVITY = b'{"type":"activity","id":1}'


class RawSocket:
    """WebSocket after its hello, as raw bytes. It never closes by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, served: Served, user: str = "alice") -> RawSocket:
        opened = cls(*await asyncio.open_connection("127.0.0.1", served.port, ssl=served.tls))
        opened.writer.write(upgrade())
        await asyncio.wait_for(opened._reader.readuntil(b"\r\n\r\n"), 10)
        opened.writer.write(make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": served.token(user)})))
        (welcome,) = [await opened.frame()]
        assert b'"welcome"' in welcome[1]
        return opened

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame; raise IncompleteReadError at the end of the connection."""
        async with asyncio.timeout(AT_ONCE_S):
            first, size = await self._reader.readexactly(2)
            assert size < 127
            if size == 126:
                (size,) = struct.unpack(">H", await self._reader.readexactly(2))
            return first & 0xF, await self._reader.readexactly(size)

    async def answer(self) -> tuple[int, bytes]:
        """Return the next frame that is not a pong."""
        while (frame := await self.frame())[0] == PONG:
            pass
        return frame

    async def rest(self) -> list[tuple[int, bytes]]:
        """Return all frames until the server closes, which must happen at once and between two frames."""
        frames = []
        try:
            while True:
                frames.append(await self.frame())
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
        finally:
            self.writer.close()
        return frames


def code_of(frame: tuple[int, bytes]) -> int:
    assert frame[0] == CLOSE
    return int.from_bytes(frame[1][:2], "big")


def reply_in(frame: tuple[int, bytes]) -> Any:
    assert frame[0] == TEXT
    return msgspec.json.decode(frame[1])


# Bad frames with their close codes.
BAD = {
    "a reserved opcode": (make_frame(0x3), 1002),
    "a frame without a mask": (make_frame(TEXT, b"x", mask=False), 1002),
    "a ping of 126 bytes": (make_frame(PING, bytes(126)), 1002),
    "a ping in fragments": (make_frame(PING, fin=False), 1002),
    "a length in too many bytes": (b"\x81\xfe\x00\x05\0\0\0\0hello", 1002),
    "a frame over 64 KiB": (make_frame(TEXT, bytes(65_537)), 1009),
    "a close code that is never sent": (make_frame(CLOSE, (1005).to_bytes(2, "big")), 1002),
    "half a close code": (make_frame(CLOSE, b"\x03"), 1002),
    "a close reason that is not UTF-8": (make_frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "close code 0": (make_frame(CLOSE, b"\0\0"), 1002),
    "close code 5000": (make_frame(CLOSE, (5000).to_bytes(2, "big")), 1002),
    "reserved bits": (make_frame(TEXT, ACTIVITY, rsv=4), 1002),
    "a continuation of nothing": (make_frame(CONTINUATION, b"x"), 1002),
    "a binary frame": (make_frame(BINARY, b"x"), 1003),
    "text that is not UTF-8": (make_frame(TEXT, b"\xff"), 1007),
}


@pytest.mark.parametrize(("bad", "code"), BAD.values(), ids=BAD.keys())
async def test_a_message_before_a_bad_frame_is_delivered_and_nothing_follows_the_close(bad: bytes, code: int) -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        raw.writer.write(make_frame(TEXT, ACTIVITY) + bad + make_frame(TEXT, ACTIVITY) + make_frame(PING, b"?"))
        reply, close = await raw.rest()
        assert reply_in(reply)["id"] == 1
        assert code_of(close) == code
        await served.until_gone()


@pytest.mark.parametrize(("bad", "code"), BAD.values(), ids=BAD.keys())
async def test_nothing_is_sent_after_the_close_though_there_is_something_to_send(bad: bytes, code: int) -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        connection = connection_of(served, "alice")
        raw.writer.write(bad)
        ended = asyncio.ensure_future(raw.rest())
        event = encode_event(Resync("late"), served.clock.now_ms())
        while not ended.done():
            connection.send(event)
            await asyncio.sleep(0)
        *before, close = await ended
        assert code_of(close) == code
        assert {opcode for opcode, _ in before} <= {TEXT}


async def test_messages_that_wait_behind_a_command_are_delivered_before_a_bad_frame_closes() -> None:
    async with serving() as served:
        await served.lobby()
        raw = await RawSocket.connect(served)
        async with hold(served.node.store, "append") as held:
            send = b'{"type":"room.send","room":"lobby","body":%d,"id":%d}'
            raw.writer.write(make_frame(TEXT, b'{"type":"room.join","room":"lobby","id":0}'))
            raw.writer.write(b"".join(make_frame(TEXT, send % (n, n)) for n in range(1, 4)) + make_frame(0x3))
            await held.reached()
            held.release()
        *answers, close = await raw.rest()
        assert [reply["id"] for reply in map(reply_in, answers) if reply["type"] == "reply"] == [0, 1, 2, 3]
        assert code_of(close) == 1002


async def test_a_pong_comes_before_the_answer_to_a_close_and_never_after() -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        ping, close = make_frame(PING, b"?"), make_frame(CLOSE, b"\x03\xe8")
        raw.writer.write(ping + close + ping + make_frame(TEXT, ACTIVITY))
        frames = await raw.rest()
        assert frames[-1] == (CLOSE, b"\x03\xe8")
        assert frames[:-1] in ([], [(PONG, b"?")])


@pytest.mark.parametrize("code", [0, 999, 1006, 5000])
async def test_the_server_ends_tcp_at_once_after_an_invalid_close_code(code: int) -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        raw.writer.write(make_frame(CLOSE, code.to_bytes(2, "big")))
        (close,) = await raw.rest()
        assert code_of(close) == 1002
        await until(lambda: served.node.stats()["connections"] == 0, AT_ONCE_S)


async def test_a_peer_that_goes_on_sending_after_a_violation_is_read_no_more_and_gets_the_close_code() -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        raw.writer.write(make_frame(0x3) + make_frame(TEXT, ACTIVITY) * 100_000)
        (close,) = await raw.rest()
        assert code_of(close) == 1002
        commands = served.node.metrics.realtime_commands_total
        await served.advance(2)
        await served.until_gone()
        assert served.node.metrics.realtime_commands_total == commands


# --- TLS ---


@asynccontextmanager
async def serving_tls(folder: Path, **sections: Any) -> AsyncIterator[Served]:
    made = certificates(folder)
    async with serving(tls={"cert": str(made.certificate), "key": str(made.key)}, **sections) as served:
        served.tls = made.context()
        yield served


@pytest.mark.parametrize("bad", ["a reserved opcode", "close code 0", "half a close code", "a binary frame"])
async def test_over_tls_too_a_message_before_a_bad_frame_is_delivered(tmp_path: Path, bad: str) -> None:
    async with serving_tls(tmp_path) as served:
        raw = await RawSocket.connect(served)
        raw.writer.write(make_frame(TEXT, ACTIVITY) + BAD[bad][0] + make_frame(TEXT, ACTIVITY))
        reply, close = await raw.rest()
        assert reply_in(reply)["id"] == 1
        assert code_of(close) == BAD[bad][1]
        await served.until_gone()


async def test_over_tls_too_the_frames_of_one_read_are_the_most_of_a_turn(tmp_path: Path) -> None:
    async with serving_tls(tmp_path, limits={"enabled": False}) as served:
        raw = await RawSocket.connect(served)
        turn = Turn(served)
        raw.writer.write(make_frame(PONG) * 10_000 + make_frame(TEXT, ACTIVITY))
        assert reply_in(await raw.answer())["id"] == 1
        assert turn.end() <= READ // 6 + 1
        raw.writer.close()


async def test_over_tls_too_a_peer_that_floods_after_its_close_is_gone_after_two_seconds(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as served:
        raw = await RawSocket.connect(served)
        connection = connection_of(served, "alice")
        connection.close(4000)
        raw.writer.write(make_frame(PONG) * 100_000)
        assert code_of(await raw.answer()) == 4000
        await until(lambda: connection._ignored >= IGNORED)
        await served.advance(2)
        await served.until_gone()
        assert connection._ignored <= IGNORED + READ // 6
        raw.writer.close()


# --- floods ---

KINDS = {
    "pongs": (make_frame(PONG), b""),
    "pings": (make_frame(PING), b""),
    "empty fragments": (make_frame(CONTINUATION, fin=False), make_frame(TEXT, fin=False)),
}


class Turn:
    """Largest number of frames counted in one loop turn."""

    def __init__(self, served: Served) -> None:
        self.most = self._frames = 0
        self._over = False
        counted = served.node.connections.counted

        def count(connection: Connection) -> bool:
            self._frames += 1
            return counted(connection)

        served.node.connections.counted = count  # type: ignore[method-assign]
        self._next()

    def _next(self) -> None:
        self.most = max(self.most, self._frames)
        self._frames = 0
        if not self._over:
            asyncio.get_running_loop().call_soon(self._next)

    def end(self) -> int:
        self._over = True
        return self.most


@pytest.mark.parametrize(("frame", "begin"), KINDS.values(), ids=KINDS.keys())
async def test_the_frames_of_one_read_are_the_most_of_a_turn(frame: bytes, begin: bytes) -> None:
    """Reads are short: otherwise a peer that sends fast could have hundreds of thousands of frames in one read."""
    async with serving(limits={"enabled": False}) as served:
        raw = await RawSocket.connect(served)
        turn = Turn(served)
        raw.writer.write(begin + frame * 2_000 + make_frame(TEXT if not begin else CONTINUATION, ACTIVITY))
        opcode, payload = await raw.answer()
        assert (opcode, msgspec.json.decode(payload)["id"]) == (TEXT, 1)
        assert turn.end() <= READ // len(frame) + 1
        raw.writer.close()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(("frame", "begin"), KINDS.values(), ids=KINDS.keys())
async def test_a_stranger_over_the_limit_is_closed_4502(frame: bytes, begin: bytes, enabled: bool) -> None:
    async with serving(limits={"enabled": enabled, "commands_per_s": 5, "commands_burst": 20}) as served:
        stranger = await served.socket()
        hello = msgspec.json.encode({"type": "hello", "token": served.token("alice")})
        # Exactly at the limit: 20 frames in total.
        stranger.send_bytes(begin + frame * (19 - bool(begin)) + make_frame(CONTINUATION if begin else TEXT, hello))
        await stranger.receive("welcome")
        rude = await served.socket()
        rude.send_bytes(begin + frame * 21)
        assert (await rude.closed()).code == 4502
        assert served.node.metrics.realtime_flood_closed_total == 1


@pytest.mark.parametrize(("frame", "begin"), KINDS.values(), ids=KINDS.keys())
async def test_a_flood_of_them_for_ten_seconds_closes_4003(frame: bytes, begin: bytes) -> None:
    async with serving(limits={"commands_per_s": 5, "commands_burst": 5}) as served:
        client = await served.client("alice")
        connection = connection_of(served, "alice")
        client.send_bytes(begin)
        for _ in range(11):
            assert not connection.closing
            seen = served.node.metrics.realtime_rate_limited_connection_total
            client.send_bytes(frame * 60)
            await until(
                lambda: connection.closing or served.node.metrics.realtime_rate_limited_connection_total >= seen + 50  # noqa: B023
            )
            await served.advance(1)
        await client.receive("overloaded")
        assert (await client.closed()).code == 4003
        assert served.node.metrics.realtime_flood_closed_total == 1


async def test_a_peer_that_floods_after_its_close_is_not_parsed_any_more() -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        connection = connection_of(served, "alice")
        connection.close(4000)
        raw.writer.write(make_frame(PONG) * 100_000)
        (close,) = await raw.rest()
        assert code_of(close) == 4000
        assert connection._ignored <= IGNORED + READ // 6
        await served.advance(2)
        await served.until_gone()


# --- one read buffer for all sockets ---


@pytest.mark.parametrize("size", [1, 3, 5, 7, len(ACTIVITY) + 5])
async def test_a_frame_in_parts_is_whole_although_others_send_between_its_parts(size: int) -> None:
    async with serving() as served:
        alice, bob = await RawSocket.connect(served, "alice"), await RawSocket.connect(served, "bob")
        hers, his = connection_of(served, "alice"), connection_of(served, "bob")
        frame = make_frame(TEXT, ACTIVITY)
        for before in (b"", frame, make_frame(TEXT, b'{"type":"activity","x":"' + b"x" * 3_000 + b'"}') + frame):
            alice.writer.write(before + frame[:size])
            if before:
                assert reply_in(await alice.answer())["id"] == 1
            await until(lambda: hers._rest)
            bob.writer.write(frame + frame)
            assert [reply_in(await bob.answer())["id"] for _ in range(2)] == [1, 1]
            assert not his._rest
            alice.writer.write(frame[size:])
            assert reply_in(await alice.answer())["id"] == 1
            assert not hers._rest
        for raw in (alice, bob):
            raw.writer.close()


@pytest.mark.parametrize("size", [1_700, 1_792, 20_000, 60_000])
async def test_a_large_frame_keeps_no_buffer_after_its_end(size: int) -> None:
    async with serving() as served:
        raw = await RawSocket.connect(served)
        frame = make_frame(TEXT, b'{"type":"activity","id":1,"x":"' + b"x" * size + b'"}')
        for _ in range(3):
            raw.writer.write(frame)
            assert reply_in(await raw.answer())["id"] == 1
        assert not connection_of(served, "alice")._rest
        raw.writer.close()


@pytest.mark.parametrize("bad", [*BAD])
async def test_bad_frames_of_one_socket_do_not_disturb_another(bad: str) -> None:
    async with serving() as served:
        bob = await RawSocket.connect(served, "bob")
        for part in (b"", make_frame(TEXT, ACTIVITY)):
            alice = await RawSocket.connect(served, "alice")
            alice.writer.write(part + BAD[bad][0])
            assert code_of((await alice.rest())[-1]) == BAD[bad][1]
            bob.writer.write(make_frame(TEXT, ACTIVITY))
            assert reply_in(await bob.answer())["id"] == 1
        bob.writer.close()


async def test_a_close_frame_of_one_socket_does_not_close_another() -> None:
    async with serving() as served:
        bob = await RawSocket.connect(served, "bob")
        for _ in range(2):
            alice = await RawSocket.connect(served, "alice")
            alice.writer.write(make_frame(TEXT, ACTIVITY) + make_frame(CLOSE, b"\x03\xe8"))
            assert code_of((await alice.rest())[-1]) == 1000
        bob.writer.write(make_frame(TEXT, ACTIVITY))
        assert reply_in(await bob.answer())["id"] == 1
        bob.writer.close()
