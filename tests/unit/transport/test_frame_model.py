"""Frames of clients: complete and incomplete ones, their payload, and violations."""

from __future__ import annotations

import pytest

from greendot.protocol.codec import MAX_FRAME
from greendot.testing.wire import CLOSE, PING, PONG, TEXT, make_frame
from greendot.transport.frame_model import BadFrame, TextFragments, close_code, next_frame, text_of

CONTINUATION, BINARY = 0x0, 0x2
SIZES = (0, 1, 3, 4, 5, 7, 125, 126, 127, 255, 256, 4_096, 65_535, MAX_FRAME)


def pattern(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_of_any_size_is_unmasked_and_ends_where_the_next_begins(size: int) -> None:
    frame, following = make_frame(BINARY, pattern(size)), make_frame(TEXT, b"next")
    assert next_frame(b"before" + frame + following, 6) == (0x82, pattern(size), 6 + len(frame))
    assert next_frame(b"before" + frame + following, 6 + len(frame)) == (0x81, b"next", 6 + len(frame + following))


@pytest.mark.parametrize("mask", [bytes(4), b"\x01\x02\x03\x04", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"])
def test_each_byte_of_the_mask_applies_to_every_fourth_byte(mask: bytes) -> None:
    payload = pattern(10)
    masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(payload))
    assert next_frame(b"\x81\x8a" + mask + masked, 0) == (0x81, payload, 16)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 300, MAX_FRAME])
def test_a_frame_is_incomplete_until_its_last_byte(size: int) -> None:
    frame = b"xx" + make_frame(TEXT, pattern(size))
    for known in {*range(2, min(len(frame), 24)), len(frame) - 1}:
        assert next_frame(frame[:known], 2) is None, known
    assert next_frame(frame, 2) is not None


@pytest.mark.parametrize("first", [0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A])
def test_messages_may_come_in_fragments_and_control_frames_may_not(first: int) -> None:
    assert next_frame(bytes([first, 0x80, 1, 2, 3, 4]), 0) == (first, b"", 6)


@pytest.mark.parametrize("first", range(256))
def test_reserved_bits_unknown_kinds_and_control_frames_in_fragments_are_violations(first: int) -> None:
    frame = bytes([first, 0x80, 1, 2, 3, 4])
    if first in (0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A):
        assert next_frame(frame, 0) is not None
        return
    with pytest.raises(BadFrame) as bad:
        next_frame(frame, 0)
    assert (bad.value.code, bad.value.of_close) == (1002, False)
    assert ("reserved" in bad.value.reason) == bool(first & 0x70)
    assert ("fragmented" in bad.value.reason) == (first in (0x08, 0x09, 0x0A))


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"\x81\x05", 1002),  # no mask
        (b"\x89\xfe\x00\x7e", 1002),  # a ping of 126 bytes
        (b"\x88\xff", 1002),  # a close of more
        (b"\x81\xfe\x00\x7d", 1002),  # 125 in two bytes
        (b"\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff", 1002),  # 65,535 in eight bytes
        (b"\x81\xff\x80\x00\x00\x00\x00\x01\x00\x00", 1002),  # the highest bit is set
        (b"\x81\xff\x00\x00\x00\x00\x00\x01\x00\x01", 1009),  # 65,537 bytes
    ],
)
def test_a_head_that_is_not_allowed_is_a_violation_before_the_payload_is_there(head: bytes, code: int) -> None:
    with pytest.raises(BadFrame) as bad:
        next_frame(b"." + head, 1)
    assert bad.value.code == code
    assert not bad.value.of_close
    assert bad.value.reason


def test_text_is_utf8() -> None:
    assert text_of("grün".encode()) == "grün"
    assert text_of(bytearray(b"plain")) == "plain"
    with pytest.raises(BadFrame) as bad:
        text_of(b"\xff")
    assert (bad.value.code, bad.value.of_close) == (1007, False)


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1011, 1014, 3000, 4000, 4999])
def test_close_codes_that_may_be_sent(code: int) -> None:
    assert close_code(code.to_bytes(2, "big")) == code
    assert close_code(code.to_bytes(2, "big") + "späť".encode()) == code


@pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 2000, 2999, 5000, 65_535])
def test_close_codes_that_may_not_be_sent(code: int) -> None:
    with pytest.raises(BadFrame) as bad:
        close_code(code.to_bytes(2, "big"))
    assert (bad.value.code, bad.value.of_close) == (1002, True)


def test_a_close_without_a_code_half_a_code_and_a_reason_that_is_no_text() -> None:
    assert close_code(b"") == 0
    for payload, code in ((b"\x03", 1002), (b"\x03\xe8\xff", 1007)):
        with pytest.raises(BadFrame) as bad:
            close_code(payload)
        assert (bad.value.code, bad.value.of_close) == (code, True)


def test_frames_of_the_test_client_are_read_back() -> None:
    data = (
        make_frame(PING, b"?") + make_frame(TEXT, b"a", fin=False) + make_frame(CONTINUATION, b"b") + make_frame(PONG)
    )
    data += make_frame(CLOSE, b"\x03\xe8")
    found, at = [], 0
    while (frame := next_frame(data, at)) is not None:
        found.append(frame[:2])
        at = frame[2]
    assert found == [(0x89, b"?"), (0x01, b"a"), (0x80, b"b"), (0x8A, b""), (0x88, b"\x03\xe8")]
    assert at == len(data)


TEXTS = ["", "a", "κόσμε", "\U0001f600", "\u0800\U00010000\x7f\x80", "é" * 300]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_text_may_be_split_between_the_bytes_of_a_character(text: str, size: int) -> None:
    data, fragments = text.encode(), TextFragments()
    for at in range(0, len(data), size):
        fragments.add(data[at : at + size])
    assert text_of(fragments) == text


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (["κόσμε".encode(), b"", b"\xf4"], b"\x90"),  # beyond the last code point
        ([b"\xed", b"\xa0"], b"\x80"),  # a surrogate
        ([b"a\xe2", b"\x82"], b"a"),  # a character that never ends
        ([], b"a\xc0\xaf"),  # longer than necessary
        (["é".encode()] * 100, b"\xff"),
    ],
)
def test_a_fragment_that_makes_the_text_bad_is_refused_at_once(good: list[bytes], bad: bytes) -> None:
    fragments = TextFragments()
    for payload in good:
        fragments.add(payload)
    with pytest.raises(BadFrame) as refused:
        fragments.add(bad)
    assert (refused.value.code, refused.value.of_close) == (1007, False)
