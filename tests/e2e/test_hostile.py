"""Harmful clients: the server keeps running, others are not affected, and no resources leak."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import pytest

from e2e.narrow import Peer, connection_of, peer, upgrade
from e2e.processes import answer_in, ask, exchange, running, serves_a_fresh_client, until
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Resync
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY
from greendot.testing.wire import CLOSE, PING, PONG, TEXT, make_frame

CONTINUATION = 0x0
BEAT = msgspec.json.encode({"type": "heartbeat"})
PAD = "x" * 50_000


class Caller:
    """Raw socket that keeps received data when the server resets it during a send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def dial(cls, port: int) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(sock)

    async def send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._sock, data)
        except ConnectionError:
            pass
        await asyncio.sleep(0)

    async def rest(self) -> bytes:
        """Return all bytes until the end, which may be a reset."""
        received = b""
        try:
            async with asyncio.timeout(10):
                while data := await self._loop.sock_recv(self._sock, 65536):
                    received += data
        except ConnectionResetError:
            pass
        finally:
            self._sock.close()
        return received


async def serves_others(served: Served) -> None:
    await serves_a_fresh_client(served.port, served.token("somebody-else"))


# --- fragments ---


async def test_a_message_in_fragments_of_one_byte_with_pings_in_between_is_one_message() -> None:
    async with serving() as served:
        client = await peer(served, "alice")
        text = msgspec.json.encode({"type": "presence.get", "users": ["bob"], "id": "é"})
        for index, byte in enumerate(text):
            client.send_frame(TEXT if index == 0 else CONTINUATION, bytes([byte]), fin=index == len(text) - 1)
            client.send_frame(PING, b"%d" % index)
            assert await client.frame() == (PONG, b"%d" % index) or index == len(text) - 1
        # The reply comes before or after the last pong: both are sent at the same time.
        assert (await client.receive("reply"))["id"] == "é"
        await serves_others(served)


async def test_fragments_without_content_are_fine() -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_frame(TEXT, b"", fin=False)
        for _ in range(1000):
            client.send_frame(CONTINUATION, b"", fin=False)
        client.send_frame(CONTINUATION, BEAT)
        await client.receive("heartbeat.ack")


async def test_a_handshake_and_frames_written_byte_by_byte_are_understood() -> None:
    async with serving() as served:
        client = await Peer.connect(served.port)
        async with client:
            await client.trickle(make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": served.token("al")})))
            await client.receive("welcome")
            await client.trickle(make_frame(PING, b"?") + make_frame(TEXT, BEAT))
            assert await client.frame() == (PONG, b"?")
            await client.receive("heartbeat.ack")
        await serves_others(served)


async def test_many_frames_in_one_packet_are_answered_in_order() -> None:
    async with serving() as served:
        client = await served.client("alice")
        client.send_bytes(
            b"".join(make_frame(TEXT, b'{"type":"presence.get","users":["bob"],"id":%d}' % n) for n in range(150))
        )
        assert [(await client.receive("reply"))["id"] for _ in range(150)] == [*range(150)]


# --- pings ---


async def test_200_000_pings_from_a_client_that_never_reads_cost_no_memory(tmp_path: Path) -> None:
    """Limits are off: with limits the client is closed earlier (tests/hostile)."""
    async with running(tmp_path, GREENDOT_LIMITS_ENABLED="false") as server:
        client, other = await Peer.connect(server.port), await server.client("other")
        await client.hello(server.token("flooder"))
        client.stop_reading()
        before = server.resident_kb
        most, pings = before, make_frame(PING, b"x" * 125) * 1000
        for _ in range(200):
            client.send_bytes(pings)
            async with asyncio.timeout(10):
                await client.drain()
                await other.quiet()
            most = max(most, server.resident_kb)
        assert most - before < 8 * 1024
        await client.reset()
        await serves_a_fresh_client(server.port, server.token("fresh"))
        await other.end()


# --- endless and invalid requests ---

STARTS = {
    "nothing": (b"", b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    "half a line": (b"GET /liv", b"ez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    "half the headers": (b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"Connection: close\r\n\r\n"),
    "half a handshake": (upgrade()[:-2], b"\r\n"),
    "half a body": (
        b"POST /v1/presence/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 18\r\n"
        b'Authorization: Bearer %b\r\n\r\n{"users": ' % API_KEY.encode(),
        b'["bob"]}',
    ),
}


@pytest.mark.parametrize(("start", "rest"), STARTS.values(), ids=STARTS.keys())
async def test_a_request_that_is_not_complete_after_ten_seconds_ends(
    start: bytes, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as served:
        patient = await asyncio.open_connection("127.0.0.1", served.port)
        endless = await asyncio.open_connection("127.0.0.1", served.port)
        for _, writer in (patient, endless):
            writer.write(start)
        await until(lambda: served.timers == 2)
        await served.advance(9.999)
        patient[1].write(rest)
        first = await asyncio.wait_for(patient[0].readuntil(b"\r\n\r\n"), 10)
        assert answer_in(first).status in (200, 101)
        await served.advance(0.001)
        assert answer_in(await asyncio.wait_for(endless[0].read(), 10)).status == 408
        for _, writer in (patient, endless):
            writer.close()
        await served.until_gone()
        await serves_others(served)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_header_that_drips_in_does_not_extend_its_time() -> None:
    async with serving() as served:
        caller = await Caller.dial(served.port)
        await caller.send(b"GET /livez HTTP/1.1\r\nX-Slow: ")
        await until(lambda: served.timers == 1)
        for _ in range(10):
            await caller.send(b"x")
            await served.advance(1)
        assert answer_in(await caller.rest()).status == 408
        assert served.node.metrics.realtime_refused_slow_total == 1
        await serves_others(served)


HUGE = {
    "one header": b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Big: " + b"x" * 20_000 + b"\r\n\r\n",
    "many headers": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X-Small: x\r\n" * 2_000 + b"\r\n",
    "a long path": b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header that does not end": b"GET /livez HTTP/1.1\r\nX-Big: " + b"x" * 300_000,
    "a handshake": upgrade(User_Agent="x" * 20_000),
    "a body announced behind it": b"POST /v1/signals HTTP/1.1\r\nX-Big: "
    + b"x" * 20_000
    + b"\r\nContent-Length: 5\r\n\r\n{}",
}


@pytest.mark.parametrize("piece", [1_000_000, 1_000], ids=["in one piece", "in pieces"])
@pytest.mark.parametrize("request_bytes", HUGE.values(), ids=HUGE.keys())
async def test_headers_over_16_kib_are_refused_however_they_arrive(request_bytes: bytes, piece: int) -> None:
    async with serving() as served:
        caller = await Caller.dial(served.port)
        for at in range(0, len(request_bytes), piece):
            await caller.send(request_bytes[at : at + piece])
        received = await caller.rest()
        assert received.count(b"HTTP/1.1 ") == 1
        assert answer_in(received).status == 431
        assert served.node.stats()["connections"] == 0
        await serves_others(served)


async def test_headers_below_16_kib_are_fine() -> None:
    async with serving() as served:
        assert (await ask(served.port, "GET", "/livez", X_Big="x" * 15_000)).status == 200


NOT_HANDSHAKES = {
    "another path": (upgrade("/"), {404}),
    "a path below": (upgrade("/v1/connect/"), {404}),
    "a path beside": (upgrade("/v1/connected"), {404}),
    "no upgrade": (b"GET /v1/connect HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {400, 404, 426}),
    "another upgrade": (upgrade(Upgrade="h2c", Connection="Upgrade, close"), {400, 404, 426}),
    "another version": (upgrade(Sec_WebSocket_Version="12"), {400, 426}),
    "no version": (upgrade(Sec_WebSocket_Version=None), {400, 426}),
    "no key": (upgrade(Sec_WebSocket_Key=None), {400}),
    "a key that is too short": (upgrade(Sec_WebSocket_Key="c2hvcnQ="), {400}),
    "a key that is no base64": (upgrade(Sec_WebSocket_Key="§" * 24), {400}),
    "another method": (upgrade(method="POST", Connection="Upgrade, close"), {400, 404, 405}),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), {400}),
    "a wrong protocol": (b"GET /v1/connect SPDY/3\r\n\r\n", {400}),
    "two lengths": (b"POST /v1/signals HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", {400}),
    "a length and chunks": (
        b"POST /v1/signals HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        {400},
    ),
}


@pytest.mark.parametrize(("request_bytes", "statuses"), NOT_HANDSHAKES.values(), ids=NOT_HANDSHAKES.keys())
async def test_an_invalid_handshake_is_refused_with_the_matching_status(
    request_bytes: bytes, statuses: set[int]
) -> None:
    async with serving() as served:
        assert (await exchange(served.port, request_bytes)).status in statuses
        await until(lambda: served.timers == 0)
        assert served.node.stats()["connections"] == 0
        await serves_others(served)


async def test_a_query_string_does_not_prevent_a_connection() -> None:
    async with serving() as served, await WireClient.connect(served.port, "/v1/connect?from=here") as client:
        await client.hello(served.token("alice"))


# --- JSON bombs ---

BOMBS = {
    "30,000 arrays": "[" * 30_000 + "]" * 30_000,
    "65,000 open arrays": "[" * 65_000,
    "10,000 objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "in a field nobody knows": '{"type":"heartbeat","x":' + "[" * 30_000 + "]" * 30_000 + "}",
    "in a body": '{"type":"room.send","room":"lobby","body":' + "[" * 30_000 + "]" * 30_000 + "}",
    "in an id": '{"type":"heartbeat","id":' + "[" * 30_000 + "]" * 30_000 + "}",
    "in an unknown command": '{"type":"?","x":' + '{"a":' * 10_000 + "1" + "}" * 10_001,
    "60,000 digits as an id": '{"type":"heartbeat","id":' + "9" * 60_000 + "}",
    "60,000 digits as a number": '{"type":"room.join","room":"lobby","after":' + "9" * 60_000 + "}",
    "an exponent": '{"type":"room.join","room":"lobby","after":1e999999999}',
    "a fraction of 60,000 digits": '{"type":"room.join","room":"lobby","after":0.' + "9" * 60_000 + "}",
    "a huge number": '{"type":"room.history","room":"lobby","before":9223372036854775808}',
    "a negative number": '{"type":"room.history","room":"lobby","before":-9223372036854775809}',
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
async def test_malicious_json_is_refused_and_harms_no_client(text: str) -> None:
    async with serving() as served:
        await served.lobby()
        client = await served.client("alice")
        client.send_frame(TEXT, text.encode())
        # The depth up to which the frame can be read, so that its type is known, depends on the Python version.
        assert (await client.receive("error"))["code"] in ("bad_frame", "bad_field", "unknown_type")
        assert await client.quiet() == []
        assert (await client.request(type="room.list"))["rooms"]
        await serves_others(served)


async def test_numbers_a_body_may_hold_are_passed_on_as_they_were_written() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await peer(served, "bob", "lobby")
        body = b'[1e300, -0, 1.00, 123456789012345678901234567890, {"a": 1, "a": 2}]'
        alice.send_frame(TEXT, b'{"type":"room.send","room":"lobby","body":' + body + b"}")
        assert body in (await bob.frame())[1]


async def test_a_huge_id_is_echoed_as_it_came() -> None:
    async with serving() as served:
        client = await served.client("alice")
        for number in (2**63, 2**64, -(2**63) - 1, 10**100, "é" * 30_000):
            client.send(type="activity", id=number)
            assert (await client.receive("reply"))["id"] == number


async def test_a_key_given_twice_is_answered_once() -> None:
    async with serving() as served:
        client = await served.client("alice")
        for text in (b'{"type":"activity","id":1,"id":2}', b'{"type":"activity","type":"bye","id":2}'):
            client.send_frame(TEXT, text)
            assert (await client.receive())["id"] == 2
            assert await client.quiet() == []


# --- vanishing clients ---


class Footprint(NamedTuple):
    """Resources of the process that clients could leak."""

    connections: int
    sessions: int
    users: int
    topics: int
    timers: int
    tasks: int
    descriptors: int


def footprint(served: Served) -> Footprint:
    stats = served.node.stats()
    counts = [stats[name] for name in ("connections", "sessions", "users", "topics")]
    return Footprint(
        *counts, served.timers, len(served.node.tasks) + len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
    )


async def in_the_middle_of_a_request(served: Served) -> None:
    client = WireClient(*await asyncio.open_connection("127.0.0.1", served.port))
    client.send_bytes(upgrade()[:50])
    await asyncio.sleep(0)
    await client.reset()


async def right_after_the_handshake(served: Served) -> None:
    client = WireClient(*await asyncio.open_connection("127.0.0.1", served.port))
    client.send_bytes(upgrade())
    await client.reset()


async def during_hello(served: Served) -> None:
    client = await served.socket()
    client.send(type="hello", token=served.token("alice"), resume={"rooms": {"lobby": 0, "club": 0}})
    await asyncio.sleep(0)
    await client.reset()


async def in_the_middle_of_a_frame(served: Served) -> None:
    client = await served.client("alice")
    client.send_bytes(make_frame(TEXT, b'{"type":', fin=False) + make_frame(CONTINUATION, BEAT)[:5])
    await client.drain()
    await client.reset()


async def during_a_watch_of_5_000_users(served: Served) -> None:
    client = await served.client("alice")
    client.send(type="watch", users=[f"user{number}" for number in range(5_000)], id=1)
    client.send(type="room.join", room="lobby")
    await asyncio.sleep(0)
    await client.reset()


async def after_a_watch_of_5_000_users(served: Served) -> None:
    client = await served.client("alice")
    await client.request(type="watch", users=[f"user{number}" for number in range(5_000)])
    await client.reset()


async def behind_in_a_flooded_room(served: Served) -> None:
    speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
    slow.stop_reading()
    await flood_until_behind(served, speaker, "alice")
    for number in range(10):
        speaker.send(type="signal.send", room="lobby", kind="cursor", key=f"k{number % 3}", body=PAD)
        await speaker.request(type="room.send", room="lobby", body=PAD)
    assert connection_of(served, "alice").behind
    await slow.reset()
    # The server detects the reset while it keeps writing.
    await speaker.request(type="room.send", room="lobby", body=PAD)
    await speaker.close()


RESETS = [
    in_the_middle_of_a_request,
    right_after_the_handshake,
    during_hello,
    in_the_middle_of_a_frame,
    during_a_watch_of_5_000_users,
    after_a_watch_of_5_000_users,
    behind_in_a_flooded_room,
]


@pytest.mark.parametrize("vanish", RESETS, ids=lambda vanish: vanish.__name__)
async def test_a_client_reset_leaves_nothing_behind(vanish: Callable[[Served], Awaitable[None]]) -> None:
    async with serving(limits={"enabled": False}) as served:
        for room in ("lobby", "club"):
            await served.node.store.put_room("default", room, open=True)
        await serves_others(served)
        await served.until_gone()
        before = footprint(served)
        assert before[:5] == (0, 0, 0, 0, 0)
        for _ in range(3):
            await vanish(served)
        await served.until_gone()
        await served.advance(60)
        await until(lambda: footprint(served) == before)
        await serves_others(served)


async def test_a_socket_lost_during_a_send_counts_for_the_grace_and_offline_is_sent_once() -> None:
    async with serving() as served:
        watcher = await served.client("watcher")
        client = await served.client("alice")
        await watcher.request(type="watch", users=["alice"])
        client.send(type="watch", users=[f"user{number}" for number in range(5_000)])
        await client.reset()
        await served.until_gone(1)
        (frames,) = await served.advance(29.999, [watcher])
        assert frames == []
        (frames,) = await served.advance(60, [watcher])
        assert [frame["data"]["state"] for frame in frames] == ["offline"]


async def test_a_client_that_sends_a_close_frame_and_never_reads_is_removed_after_two_seconds() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        slow.send_frame(CLOSE, b"\x03\xe8")
        await until(lambda: not [*served.node.registry.connections_of("default", "alice")])
        await served.advance(2, [speaker])
        await served.until_gone(1)


async def test_a_client_that_half_closes_is_lost_at_once_though_it_does_not_read() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        connection = connection_of(served, "alice")
        slow.half_close()
        await until(lambda: connection.closing)
        await served.advance(2, [speaker])
        await served.until_gone(1)
        await slow.reset()


async def test_a_client_that_ignores_a_close_is_gone_after_two_seconds() -> None:
    async with serving() as served:
        client = await peer(served, "alice")
        client.send(type="hello", token="again")
        assert (await client.frame())[0] == CLOSE
        await served.advance(1.999)
        assert served.node.stats()["connections"] == 1
        await served.advance(0.001)
        await served.until_gone()


# --- slow clients ---


async def flood_until_behind(served: Served, speaker: WireClient, slow: str) -> int:
    """Send numbered values of one key until a listener falls behind; return the last number sent."""
    number = 0
    while not connection_of(served, slow).behind:
        number += 1
        assert number < 1000, "the kernel buffered all frames"
        await speaker.request(type="signal.send", room="lobby", kind="n", key="n", body=[number, PAD])
    return number


async def test_a_slow_reader_gets_the_latest_value_of_each_key_and_others_get_every_one() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, fast = await served.joined("speaker"), await served.joined("bob")
        slow = await peer(served, "alice", "lobby")
        slow.stop_reading()
        stalled = await flood_until_behind(served, speaker, "alice")
        for number in range(stalled + 1, stalled + 101):
            for key in ("n", "m"):
                await speaker.request(type="signal.send", room="lobby", kind="n", key=key, body=[number, "x" * 2_000])
        heard = [frame["data"]["body"][0] for frame in await fast.quiet() if frame["data"]["key"] == "n"]
        assert heard == [*range(1, stalled + 101)]
        slow.go_on_reading()
        frames = await slow.quiet()
        values = {key: [f["data"]["body"][0] for f in frames if f["data"]["key"] == key] for key in ("n", "m")}
        # The kernel buffered all values up to the stall; of later values only the newest arrives.
        assert values["n"] == [*range(1, stalled + 1), stalled + 100]
        assert values["m"] == [stalled + 100]
        await speaker.request(type="signal.send", room="lobby", kind="n", key="n", body=[0])
        assert [frame["data"]["body"] for frame in await slow.quiet()] == [[0]]


async def test_signals_without_a_key_are_dropped_beyond_a_bound_and_never_merged() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        for number in range(1_200):
            await speaker.request(type="signal.send", room="lobby", kind="free", body=number)
        slow.go_on_reading()
        free: list[int] = []
        while 999 not in free:
            frame = await slow.receive("signal")
            free += [frame["data"]["body"]] if frame["data"]["kind"] == "free" else []
        assert await slow.quiet() == []
        assert free == [*range(1_000)]
        assert served.node.metrics.realtime_dropped_ephemeral_total == 200


async def test_over_1_mib_of_messages_closes_a_slow_reader_4001_and_it_recovers_them_all() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, fast = await served.joined("speaker"), await served.joined("bob")
        slow = await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        connection = connection_of(served, "alice")
        sent = 0
        while not connection.closing:
            sent += 1
            assert sent < 100
            await speaker.request(type="room.send", room="lobby", body=[sent, PAD])
        assert sent * len(PAD) > 1024 * 1024
        assert [f["data"]["seq"] for f in await fast.quiet() if f["type"] == "room.message"] == [*range(1, sent + 1)]
        slow.go_on_reading()
        frames, code = [], 0
        try:
            while True:
                frames.append(await slow.receive())
        except Closed as closed:
            code = closed.code
        assert code == 4001
        assert "room.message" not in {frame["type"] for frame in frames}
        back = await served.client("alice", resume={"session": slow.welcome["session"], "rooms": {"lobby": 0}})
        assert back.welcome["resumed"]
        assert [frame["data"]["seq"] for frame in await back.quiet()] == [*range(1, sent + 1)]


async def test_messages_reach_a_slow_reader_before_signals_and_in_order() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        stalled = await flood_until_behind(served, speaker, "alice")
        for number in range(50):
            await speaker.request(type="signal.send", room="lobby", kind="n", key="n", body=[-number])
            await speaker.request(type="room.send", room="lobby", body=number)
        slow.go_on_reading()
        frames = (await slow.quiet())[stalled:]
        assert [frame["type"] for frame in frames] == ["room.message"] * 50 + ["signal"]
        assert [frame["data"]["body"] for frame in frames] == [*range(50), [-49]]


async def test_a_slow_reader_removed_from_a_room_receives_nothing_of_it_afterwards() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.node.store.put_room("default", "lobby", open=False)
        for user in ("speaker", "alice"):
            await served.node.store.put_member("default", "lobby", user)
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        await speaker.request(type="signal.send", room="lobby", kind="secret", key="s", body="a secret")
        await speaker.request(type="room.send", room="lobby", body="a secret")
        path = "/v1/rooms/lobby/members/alice"
        assert (await ask(served.port, "DELETE", path, Authorization=f"Bearer {API_KEY}")).status == 204
        await speaker.request(type="room.send", room="lobby", body="a secret")
        slow.go_on_reading()
        frames: list[dict[str, Any]] = await slow.quiet()
        removed = [index for index, frame in enumerate(frames) if frame["type"] == "room.changed"]
        assert len(removed) == 1
        assert frames[removed[0]]["data"]["removed"] is True
        assert frames[removed[0] + 1 :] == []
        assert "a secret" not in [frame["data"].get("body") for frame in frames]


async def test_short_frames_behind_one_the_kernel_took_in_part_are_not_left_out() -> None:
    async with serving() as served:
        client = await served.client("alice")
        (connection,) = served.node.registry.connections.values()
        now = served.clock.now_ms()
        connection.send(encode_event(Resync("x" * 8_000_000), now))  # more than a socket buffers
        for number in range(5):
            connection.send(encode_event(Resync(f"short {number}"), now))
        scopes = [frame["data"]["scope"] for frame in await client.quiet()]
        assert len(scopes[0]) == 8_000_000
        assert scopes[1:] == [f"short {number}" for number in range(5)]


async def test_a_slow_reader_also_receives_the_reason_for_its_close() -> None:
    async with serving(limits={"enabled": False}, server={"drain_s": 5.0}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        slow.stop_reading()
        await flood_until_behind(served, speaker, "alice")
        draining = asyncio.ensure_future(served.node.drain(5.0))
        await until(lambda: connection_of_all_closing(served))
        slow.go_on_reading()
        last: list[str] = []
        try:
            while True:
                last.append((await slow.receive())["type"])
        except Closed as closed:
            assert (closed.code, last[-1]) == (4000, "drain")  # noqa: PT017
        await speaker.closed()
        await draining


def connection_of_all_closing(served: Served) -> bool:
    return all(connection.closing for connection in served.node.registry.connections.values())
