from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.transport.send_buffer_model import (
    MAX_RECORD_BYTES,
    MAX_SIGNAL_BYTES,
    MAX_SIGNAL_KEYS,
    PART_BYTES,
    SendBuffer,
)

frames = st.binary(min_size=1, max_size=20)


def some(outbox: SendBuffer, most: int) -> bytes:
    return b"".join(item.frame for item in outbox.take(most))


def everything(outbox: SendBuffer) -> bytes:
    return some(outbox, 10 * MAX_RECORD_BYTES)


def test_a_new_outbox_has_nothing_to_send() -> None:
    outbox = SendBuffer()
    assert len(outbox) == 0
    assert everything(outbox) == b""
    assert not outbox.pressed
    assert outbox.warned is False


def test_records_go_out_in_the_order_they_came() -> None:
    outbox = SendBuffer()
    for number in range(10):
        assert outbox.offer_record(b"%d" % number)
    assert everything(outbox) == b"0123456789"
    assert len(outbox) == 0


def test_records_go_out_before_signals_that_came_earlier() -> None:
    outbox = SendBuffer()
    outbox.offer_signal(b"s", "key")
    outbox.offer_record(b"r")
    assert everything(outbox) == b"rs"


def test_only_the_latest_signal_of_a_key_is_kept() -> None:
    outbox = SendBuffer()
    for frame in (b"a", b"b", b"c"):
        assert outbox.offer_signal(frame, "ann")
    assert len(outbox) == 1
    assert everything(outbox) == b"c"


def test_a_signal_that_would_be_replaced_is_known_before() -> None:
    outbox = SendBuffer()
    outbox.offer_signal(b"a", "ann")
    outbox.offer_signal(b"x")
    assert (outbox.signal("ann"), outbox.signal("bob"), outbox.signal(None)) == (b"a", None, None)


def test_the_latest_signal_takes_the_last_place() -> None:
    outbox = SendBuffer()
    outbox.offer_signal(b"a1", "ann")
    outbox.offer_signal(b"b1", "bob")
    outbox.offer_signal(b"a2", "ann")
    assert everything(outbox) == b"b1a2"


def test_signals_without_a_key_are_never_merged() -> None:
    outbox = SendBuffer()
    for _ in range(3):
        outbox.offer_signal(b"x")
    assert everything(outbox) == b"xxx"


def test_records_are_taken_up_to_the_last_byte_of_the_limit() -> None:
    outbox = SendBuffer()
    assert outbox.offer_record(b"x" * (MAX_RECORD_BYTES - 1))
    assert outbox.offer_record(b"y")
    assert not outbox.offer_record(b"z")
    assert outbox.record_bytes == MAX_RECORD_BYTES
    assert everything(outbox).endswith(b"xy")


def test_taking_makes_room_for_records_again() -> None:
    outbox = SendBuffer()
    outbox.offer_record(b"x" * MAX_RECORD_BYTES)
    assert not outbox.offer_record(b"y")
    everything(outbox)
    assert outbox.record_bytes == 0
    assert outbox.offer_record(b"y")


def test_signals_do_not_count_towards_the_limit_of_records() -> None:
    outbox = SendBuffer()
    outbox.offer_signal(b"s" * MAX_RECORD_BYTES, "big")
    assert outbox.offer_record(b"x" * MAX_RECORD_BYTES)


def test_a_signal_of_a_new_key_is_dropped_when_all_keys_are_taken() -> None:
    outbox = SendBuffer()
    for key in range(MAX_SIGNAL_KEYS):
        assert outbox.offer_signal(b"o", key)
    assert not outbox.offer_signal(b"n", "new")
    assert not outbox.offer_signal(b"n")
    assert everything(outbox) == b"o" * MAX_SIGNAL_KEYS


def test_a_signal_of_a_known_key_is_kept_even_when_all_keys_are_taken() -> None:
    outbox = SendBuffer()
    for key in range(MAX_SIGNAL_KEYS):
        outbox.offer_signal(b"o", key)
    assert outbox.offer_signal(b"n", 0)
    assert everything(outbox) == b"o" * (MAX_SIGNAL_KEYS - 1) + b"n"


def test_it_is_pressed_from_half_of_either_lane_on() -> None:
    outbox = SendBuffer()
    outbox.offer_record(b"x" * (MAX_RECORD_BYTES // 2 - 1))
    assert not outbox.pressed
    outbox.offer_record(b"y")
    assert outbox.pressed

    outbox = SendBuffer()
    for key in range(MAX_SIGNAL_KEYS // 2 - 1):
        outbox.offer_signal(b"s", key)
    assert not outbox.pressed
    outbox.offer_signal(b"s", "half")
    assert outbox.pressed


def test_a_part_that_is_taken_ends_with_a_whole_frame_and_the_rest_follows() -> None:
    outbox = SendBuffer()
    for frame in (b"aaa", b"bbb", b"ccc"):
        outbox.offer_record(frame)
    outbox.offer_signal(b"ddd", "key")
    assert some(outbox, 4) == b"aaabbb"
    assert outbox.record_bytes == 3
    assert some(outbox, 4) == b"cccddd"
    assert some(outbox, 4) == b""


@settings(deadline=None)
@given(st.lists(st.tuples(frames, st.one_of(st.none(), st.just("record"), st.integers(0, 3)))), st.integers(1, 50))
def test_however_it_is_taken_every_record_and_each_latest_signal_goes_out(
    offers: list[tuple[bytes, object]], most: int
) -> None:
    outbox = SendBuffer()
    records: list[bytes] = []
    signals: list[tuple[object, bytes]] = []
    for frame, key in offers:
        if key == "record":
            assert outbox.offer_record(frame)
            records.append(frame)
        else:
            assert outbox.offer_signal(frame, key)
            signals = [(k, f) for k, f in signals if k is None or k != key] + [(key, frame)]
    pieces = [*iter(lambda: some(outbox, most), b"")]
    assert b"".join(pieces) == b"".join(records) + b"".join(frame for _, frame in signals)
    assert all(len(piece) < most + 20 for piece in pieces)
    assert len(outbox) == 0


def test_signals_are_bounded_in_bytes_too() -> None:
    outbox = SendBuffer()
    big = b"x" * (MAX_SIGNAL_BYTES // 4)
    assert [outbox.offer_signal(big, key) for key in "abcde"] == [True] * 4 + [False]
    assert outbox.offer_signal(b"small", "a"), "a replaced signal must make room"
    assert outbox.offer_signal(big[:-5], "e")
    outbox.drop(lambda key: key != "a")
    assert outbox.signal_bytes == len(b"small")
    assert everything(outbox) == b"small"
    assert outbox.signal_bytes == 0


def test_what_was_let_in_before_is_kept_whatever_its_size_and_counts() -> None:
    outbox = SendBuffer()
    for _ in range(3):
        outbox.keep(b"x" * MAX_RECORD_BYTES)
    assert not outbox.offer_record(b"y")
    assert len(outbox) == 3


@given(st.lists(st.tuples(frames, st.booleans(), st.sampled_from("abc")), max_size=20), st.integers(1, 100))
def test_what_is_put_back_is_first_again_and_nothing_is_lost(offered: list[tuple[bytes, bool, str]], most: int) -> None:
    one, other = SendBuffer(), SendBuffer()
    for outbox in (one, other):
        for frame, record, key in offered:
            if record:
                outbox.offer_record(frame, key)
            else:
                outbox.offer_signal(frame, key)
    taken = one.take(most)
    one.put_back(taken[1:])
    assert (one.record_bytes, one.signal_bytes) <= (other.record_bytes, other.signal_bytes)
    assert b"".join(item.frame for item in taken[:1]) + everything(one) == everything(other)
    assert (one.record_bytes, one.signal_bytes, len(one)) == (0, 0, 0)


def test_what_is_dropped_is_named_and_the_rest_keeps_its_order() -> None:
    outbox = SendBuffer()
    for number in range(4):
        outbox.offer_record(b"%d" % number, "odd" if number % 2 else "even")
        outbox.offer_signal(b"s%d" % number, ("odd" if number % 2 else "even", number))
    assert outbox.drop(lambda key: key == "odd" or key == ("odd", 1)) == ["odd", "odd", ("odd", 1)]
    assert everything(outbox) == b"02s0s2s3"


def test_the_last_of_all_that_wait_is_dropped_too() -> None:
    outbox = SendBuffer()
    outbox.offer_record(b"r", "gone")
    outbox.offer_signal(b"s", "gone too")
    assert outbox.drop(lambda key: True) == ["gone", "gone too"]
    assert (len(outbox), outbox.record_bytes, outbox.signal_bytes) == (0, 0, 0)
    assert outbox.drop(lambda key: True) == []


def test_it_is_pressed_from_half_of_the_bytes_of_signals_on() -> None:
    outbox = SendBuffer()
    outbox.offer_signal(b"." * (MAX_SIGNAL_BYTES // 2 - 1))
    assert not outbox.pressed
    outbox.offer_signal(b".")
    assert outbox.pressed


def test_no_frame_is_taken_beyond_what_was_asked_for() -> None:
    outbox = SendBuffer()
    for frame in (b"ab", b"c"):
        outbox.offer_record(frame)
    outbox.offer_signal(b"s", "key")
    assert [some(outbox, 2), some(outbox, 1), some(outbox, 1)] == [b"ab", b"c", b"s"]


def test_a_part_is_taken_where_nothing_else_is_asked_for() -> None:
    outbox = SendBuffer()
    for _ in range(3):
        outbox.offer_record(b"." * (PART_BYTES // 2))
    assert [len(outbox.take()), len(outbox.take()), len(outbox.take())] == [2, 1, 0]
