"""Hub with recording listeners: recipients and order of frames, for all ways to slice the writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.engine.messages import Topic
from greendot.node import hub as module
from greendot.node.channel import Channel, Pending
from greendot.node.hub import Hub
from greendot.node.hub_model import WriteThrottle
from greendot.node.session import Connection
from greendot.telemetry.metrics import Metrics


class Listener:
    """Listener that takes direct writes, or collects frames until the end of the tick."""

    everybody: ClassVar[list[Listener]] = []  # indexed by the descriptor
    dialect = None

    def __init__(self, hub: Hub, *, keeps_up: bool = True) -> None:
        self._hub = hub
        self.fd = len(Listener.everybody)
        Listener.everybody.append(self)
        self.direct = self.fd if keeps_up else -1
        self.behind = not keeps_up
        self.frames: list[bytes] = []
        self.writes = 0
        self.room_for: int | None = None  # bytes that the kernel accepts; None: all
        self.stalled: tuple[list[bytes], int] | None = None
        self._out: list[bytes] = []

    def send(self, frame: bytes, *, record: bool = True, key: object = None) -> None:
        if not self._out:
            self._hub.has_output(cast(Connection, self))
            self.direct = -1
        self._out.append(frame)

    def flush(self) -> None:
        self.writes += 1
        self.took(b"".join(self._out))
        self._out = []
        self.direct = self.fd

    def took(self, data: bytes) -> None:
        self.frames += data.splitlines()

    def stall(self, items: list[Pending], sent: int) -> None:
        self.stalled = [item.frame for item in items], sent

    def failed(self) -> None:
        raise AssertionError("nothing fails here")


def _send_each(descriptors: list[int], data: bytes) -> list[tuple[int, int]]:
    incomplete = []
    for index, descriptor in enumerate(descriptors):
        listener = Listener.everybody[descriptor]
        listener.writes += 1
        if listener.room_for is None:
            listener.took(data)
        else:
            incomplete.append((index, min(listener.room_for, len(data))))
    return incomplete


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make two listeners a large room, and let each turn write to one listener."""
    monkeypatch.setattr(module, "send_each", _send_each)
    monkeypatch.setattr(module, "LARGE", 2)
    monkeypatch.setattr(module, "STEP", 1)
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    yield
    Listener.everybody.clear()


def made(throttle: WriteThrottle | None = None, **rest: Any) -> tuple[Hub, Metrics]:
    metrics = Metrics()
    return Hub(metrics, throttle, **rest), metrics


def listeners(hub: Hub, channel: Channel, count: int) -> list[Listener]:
    listening = [Listener(hub) for _ in range(count)]
    for listener in listening:
        hub.attach(channel, cast(Connection, listener))
    return listening


def frame(number: int) -> bytes:
    return b"%d\n" % number


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_large_room_is_written_some_listeners_at_a_time() -> None:
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 5)
    hub.offer(channel, frame(1), record=True)
    await turns(3)
    reached = sum(1 for listener in crowd if listener.frames)
    assert 1 <= reached < 5
    assert hub.backlog == 5 - reached
    await turns(10)
    assert [listener.frames for listener in crowd] == [[b"1"]] * 5
    assert hub.backlog == 0


async def test_frames_that_arrived_during_a_long_write_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module, "perf_counter", lambda: now)
    monkeypatch.setattr(module, "MANY", 2)
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 2)
    hub.offer(channel, frame(0), record=True)
    await turns(1)
    assert [listener.writes for listener in crowd] == [1, 1]
    hub.offer(channel, frame(1), record=True)  # in the turn after the write: it was in a socket already
    await turns(5)
    hub.offer(channel, frame(2), record=True)
    crowd[0].send(b"reply\n")
    await turns(5)
    assert [listener.frames for listener in crowd] == [[b"0", b"reply"], [b"0"]]  # a single connection does not wait
    now = module.LONGEST_WAIT_S
    await turns(2)
    assert [listener.frames for listener in crowd] == [[b"0", b"reply", b"1", b"2"], [b"0", b"1", b"2"]]
    assert [listener.writes for listener in crowd] == [3, 2]


@pytest.mark.parametrize(("many", "later"), [(2, 1), (3, 0)])
async def test_other_frames_do_not_wait(many: int, later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a short write, or if the frame came later than the turn after a long write."""
    monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(module, "MANY", many)
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 2)
    hub.offer(channel, frame(0), record=True)
    await turns(1 + later)
    hub.offer(channel, frame(1), record=True)
    await turns(1)
    assert [listener.frames for listener in crowd] == [[b"0", b"1"], [b"0", b"1"]]


@pytest.mark.parametrize(("few", "size", "is_cut"), [(3, 20, True), (3, 10, False), (4, 20, False)])
async def test_large_frames_are_written_to_some_listeners_at_a_time(
    few: int, size: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", 10)
    monkeypatch.setattr(module, "FEW", few)
    monkeypatch.setattr(module, "LARGE_BYTES", 4 * 2 * 10)
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 4)
    for _ in range(2):
        hub.offer(channel, b"x" * (size - 1) + b"\n", record=True)
    await turns(2)
    assert any(not listener.frames for listener in crowd) is is_cut
    await turns(10)
    assert [listener.frames for listener in crowd] == [[b"x" * (size - 1)] * 2] * 4


async def test_frames_offered_while_a_large_room_is_written_are_joined_into_its_next_write() -> None:
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 4)
    hub.offer(channel, frame(0), record=True)
    await turns(2)
    for number in range(1, 9):
        hub.offer(channel, frame(number), record=True)
    await turns(20)
    assert [listener.frames for listener in crowd] == [[b"%d" % number for number in range(9)]] * 4
    assert [listener.writes for listener in crowd] == [2] * 4


async def test_two_large_rooms_take_turns_and_a_small_one_does_not_wait_for_them() -> None:
    hub, _ = made()
    large = [hub.channel(Topic("room", "t", name)) for name in ("a", "b")]
    crowds = [listeners(hub, channel, 10) for channel in large]
    for channel in large:
        hub.offer(channel, frame(1), record=True)
    await turns(8)
    small = hub.channel(Topic("room", "t", "small"))
    (alone,) = listeners(hub, small, 1)
    hub.offer(small, frame(2), record=True)
    await turns(2)
    reached = [sum(1 for listener in crowd if listener.frames) for crowd in crowds]
    assert max(reached) < 10
    assert abs(reached[0] - reached[1]) <= 2, "large rooms must take turns"
    assert alone.frames == [b"2"]
    await turns(30)
    assert all(listener.frames == [b"1"] for crowd in crowds for listener in crowd)


async def test_signals_of_one_key_that_wait_are_merged_and_counted_and_records_are_not() -> None:
    hub, metrics = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 3)
    hub.offer(channel, frame(0), record=True)
    await turns(2)
    for number in range(1, 5):
        hub.offer(channel, frame(number), key="cursor")
        hub.offer(channel, frame(100 + number), record=True, key="same")
    hub.offer(channel, frame(50))
    hub.offer(channel, frame(51))
    await turns(20)
    expected = [b"0", b"101", b"102", b"103", b"4", b"104", b"50", b"51"]
    assert [listener.frames for listener in crowd] == [expected] * 3
    assert sum(metrics.coalesced.values()) == 3  # once for all listeners
    assert metrics.realtime_dropped_ephemeral_total == 0


async def test_signals_beyond_what_may_wait_are_dropped_and_counted_and_records_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    hub, metrics = made()
    channel = hub.channel(Topic("room", "t", "r"))
    crowd = listeners(hub, channel, 3)
    hub.offer(channel, frame(0), record=True)
    await turns(2)
    for number in range(1, 31):
        hub.offer(channel, frame(number))
    for number in range(31, 61):
        hub.offer(channel, frame(number), record=True)
    await turns(20)
    assert metrics.realtime_dropped_ephemeral_total == 20
    assert crowd[0].frames == [b"%d" % number for number in (*range(11), *range(31, 61))]


async def test_signals_of_low_priority_are_shed_while_the_node_has_too_much_to_do() -> None:
    hub, metrics = made()
    channel = hub.channel(Topic("room", "t", "r"))
    (listener,) = listeners(hub, channel, 1)
    hub.shedding = True
    hub.offer(channel, frame(1), low=True)
    hub.offer(channel, frame(2))
    hub.offer(channel, frame(3), record=True)
    hub.shedding = False
    hub.offer(channel, frame(4), low=True)
    await turns(3)
    assert listener.frames == [b"2", b"3", b"4"]
    assert metrics.realtime_shed_total == 1


async def test_what_the_kernel_did_not_take_is_left_to_the_connection_frame_by_frame() -> None:
    hub, _ = made()
    channel = hub.channel(Topic("room", "t", "r"))
    full, half = listeners(hub, channel, 2)
    full.room_for, half.room_for = 0, 3
    hub.offer(channel, frame(1), record=True)
    hub.offer(channel, frame(2), record=True)
    await turns(3)
    assert full.stalled == ([b"1\n", b"2\n"], 0)
    assert half.stalled == ([b"1\n", b"2\n"], 3)


async def test_writes_per_second_are_bounded_and_shared_between_rooms() -> None:
    now = 0.0
    hub, metrics = made(WriteThrottle(100, 0.0), now=lambda: now)
    rooms = [hub.channel(Topic("room", "t", name)) for name in ("loud", "quiet")]
    loud, quiet = listeners(hub, rooms[0], 50), listeners(hub, rooms[1], 2)
    written = []
    for tick in range(20):
        hub.offer(rooms[0], frame(tick), record=True)
        if tick == 10:
            hub.offer(rooms[1], frame(7), record=True)
        for _ in range(20):
            hub.flush()
        now += 0.1
        written.append(metrics.realtime_socket_send_total)
    assert written[-1] <= 100 * 2 + 10
    assert [listener.frames for listener in quiet] == [[b"7"]] * 2, "ten writes per tick must suffice for both rooms"
    now += 100
    for _ in range(300):
        hub.flush()
        now += 0.1
    assert [listener.frames for listener in loud] == [[b"%d" % tick for tick in range(20)]] * 50


SAID = st.tuples(st.just("say"), st.booleans(), st.integers(0, 5))
STORIES = st.lists(
    st.one_of(
        SAID,
        SAID,
        st.tuples(st.sampled_from(["come", "leave", "again"]), st.just(0), st.integers(0, 5)),
        st.tuples(st.just("turn"), st.just(0), st.integers(1, 3)),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(STORIES, st.integers(0, 6), st.sampled_from([-1, 0.0, 1.0]))
def test_every_listener_receives_exactly_what_is_published_while_it_listens(
    story: list[tuple[str, Any, int]], first: int, slice_s: float
) -> None:
    """Check order, duplicates, losses and the skipped sender for random sequences of turns, joins and leaves."""
    asyncio.run(_told(story, first, slice_s))


async def _told(story: list[tuple[str, Any, int]], first: int, slice_s: float) -> None:
    module.SLICE_S = slice_s
    Listener.everybody.clear()
    hub, _ = made()
    channels = [hub.channel(Topic("room", "t", name)) for name in ("a", "b")]
    people = [Listener(hub, keeps_up=number % 3 != 2) for number in range(6)]
    expected: dict[Listener, list[bytes]] = {person: [] for person in people}
    inside: set[Listener] = set(people[:first])
    for person in people[:first]:
        hub.attach(channels[0], cast(Connection, person))
    for number, (what, flag, who) in enumerate(story):
        person = people[who]
        if what == "say":
            skip = (cast(Connection, person),) if flag else ()
            hub.offer(channels[0], frame(number), record=True, skip=skip)
            for listener in inside - ({person} if flag else set()):
                expected[listener].append(b"%d" % number)
            hub.offer(channels[1], frame(1_000), record=True)
        elif what == "turn":
            await turns(who)
        elif what == "leave" and person in inside:
            # Frames that still wait are not for a listener that left. Only frames written before count.
            hub.detach(channels[0], cast(Connection, person))
            inside.discard(person)
            person.flush()
            expected[person] = [*person.frames]
        elif what in ("come", "again"):
            hub.attach(channels[0], cast(Connection, person))
            inside.add(person)
    await turns(200)
    assert {person.fd: person.frames for person in people} == {person.fd: said for person, said in expected.items()}
    assert hub.backlog == 0
