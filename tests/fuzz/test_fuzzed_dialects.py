"""Random frames of Pusher and Centrifuge clients whose identity is right: the server and others stay unharmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from e2e.narrow import upgrade
from fuzz.live import Live, fuzzing, tells_nothing
from fuzz.nonsense import JSON, Nonsense
from fuzz.test_fuzzed_frames import frames_in
from greendot.compat.centrifuge import codec_model
from greendot.compat.centrifuge.codec_model import BadCommand
from greendot.compat.centrifuge.protobuf import as_json
from greendot.compat.pusher.signature_model import channel_text, sign, user_text
from greendot.testing.wire import CLOSE, TEXT, make_frame

APP = {"APP_ID": "4711", "KEY": "a-public-key", "SECRET": "a secret of twenty+"}
ON = {f"GREENDOT_PUSHER_{name}": value for name, value in APP.items()} | {"GREENDOT_CENTRIFUGE_ENABLED": "true"}
NONSENSE = Nonsense(("lobby", "news:1", "presence-a", "private-b", "cache-c", "$d", "x#alice", "system", ""))
PUSHER_END = '{"event":"pusher:unsubscribe","data":7}', b"`int`"  # its error
CENTRIFUGE_END = '{"id":987654321,"presence":{"channel":""}}', b"987654321"
CHANNELS = ("presence-a", "private-b", "private-cache-c", "presence-cache-d", "lobby", "cache-e", "#server-to-user-ann")

# --- Pusher ---

members = st.builds(
    lambda user, info, more: json.dumps(more | {"user_id": user, "user_info": info}),
    st.sampled_from(["ann", "ann", "ann", 7, None]) | NONSENSE.names,
    JSON,
    st.dictionaries(st.text(max_size=5), JSON, max_size=2),
)
users = st.builds(
    lambda user, info, watched: json.dumps({"id": user, "user_info": info, "watchlist": watched}),
    st.sampled_from(["ann", "ann", "ann", "system", 7]) | NONSENSE.names,
    JSON,
    st.lists(NONSENSE.names, max_size=4),
)
subscriptions = st.tuples(
    st.just("subscribe"), st.sampled_from(CHANNELS) | NONSENSE.names, st.one_of(st.none(), members, members, st.text())
)
sign_ins = st.tuples(st.just("signin"), st.one_of(users, users, users, st.text(max_size=20)), st.none())
events = st.tuples(
    st.just("event"),
    st.sampled_from(["client-typing", "client-x", "client-", "pusher:unsubscribe", "pusher:ping"])
    | st.text(max_size=9),
    st.tuples(
        st.sampled_from(CHANNELS), JSON | st.builds(lambda channel: {"channel": channel}, st.sampled_from(CHANNELS))
    ),
)
texts = st.tuples(st.just("text"), st.text(max_size=40) | JSON.map(json.dumps), st.none())
steps = st.lists(st.one_of(subscriptions, subscriptions, subscriptions, sign_ins, events, events, texts), max_size=8)


def pusher_frame(socket_id: str, kind: str, what: str, more: Any) -> str:
    """Return the frame of a step, signed for the socket."""
    key, secret = APP["KEY"], APP["SECRET"]
    if kind == "text":
        return what
    if kind == "event":
        return json.dumps({"event": what, "channel": more[0], "data": more[1]})
    if kind == "signin":
        data = {"auth": f"{key}:{sign(secret, user_text(socket_id, _plain(what)))}", "user_data": _plain(what)}
        return json.dumps({"event": "pusher:signin", "data": data})
    channel, member = _plain(what), None if more is None else _plain(more)
    data = {"channel": channel, "auth": f"{key}:{sign(secret, channel_text(socket_id, channel, member))}"}
    return json.dumps(
        {"event": "pusher:subscribe", "data": data if member is None else data | {"channel_data": member}}
    )


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()


Say = Callable[[bytes], list[str]]  # frames of the client, which may depend on the first data of the server


async def talked(port: int, path: str, say: Say, first: int, last: tuple[str, bytes]) -> bytes:
    """Send frames after the first ones of the server, and a last one. Return all data until the server closes.

    The last frame comes with text that its answer has. The client ends its side after this answer, or
    after the server's close.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(upgrade(path))
        await reader.readuntil(b"\r\n\r\n")
        while len(frames_in(received)) < first:
            received += await reader.read(65_536)
        frames = [*say(received), last[0]]
        writer.write(b"".join(make_frame(TEXT, one.encode(errors="replace")) for one in frames))
        is_over = False
        while part := await reader.read(65_536):
            received += part
            ends = (opcode == CLOSE or last[1] in payload for opcode, payload in frames_in(received))
            if not is_over and any(ends):
                is_over = True
                writer.write_eof()
    except ConnectionError:
        pass  # the server closed before it had read all
    finally:
        writer.close()
    return received


def check(answers: bytes, sent: bytes) -> list[Any]:
    """Check the frames of the server; return the text of each."""
    found = frames_in(answers)
    assert [opcode for opcode, _ in found[:-1]].count(CLOSE) == 0, "a frame follows the close frame"
    codes = [int.from_bytes(payload[:2], "big") for opcode, payload in found if opcode == CLOSE]
    assert {1011, 3004, 4000} & {*codes} == set(), "an internal error"
    tells_nothing(answers, sent)
    return [payload.decode() for opcode, payload in found if opcode == TEXT]


def test_any_frames_of_a_pusher_client_leave_the_server_unharmed(tmp_path: Path) -> None:
    with Live(tmp_path, **ON) as live:

        @fuzzing
        @given(steps)
        def send(asked: list[tuple[str, str, Any]]) -> None:
            def frames(received: bytes) -> list[str]:
                (_, established), *_ = frames_in(received)
                socket_id = json.loads(json.loads(established)["data"])["socket_id"]
                return [pusher_frame(socket_id, *one) for one in asked]

            answers = live.do(talked(live.server.port, f"/app/{APP['KEY']}?protocol=7", frames, 1, PUSHER_END))
            for text in check(answers, repr(asked).encode(errors="replace")):
                frame = json.loads(text)
                assert isinstance(frame["event"], str)
            live.has_not_grown()

        send()


# --- Centrifuge ---

commands = st.one_of(
    *(
        st.builds(
            lambda number, value, name=name: {"id": number, name: value},
            st.integers(1, 9),
            NONSENSE.of(getattr(codec_model, "".join(part.capitalize() for part in name.split("_")))) | JSON,
        )
        for name in codec_model.METHODS
    )
)


def line(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return "{}"


wrong = st.text(max_size=30) | JSON.map(line) | commands.map(lambda command: line(command | {"id": -1}))
lines = st.lists(st.one_of(*[commands.map(line)] * 12, wrong), min_size=1, max_size=8).map("\n".join)


def test_any_commands_of_a_centrifuge_client_leave_the_server_unharmed(tmp_path: Path) -> None:
    with Live(tmp_path, **ON) as live:
        connect = json.dumps({"id": 1, "connect": {"token": live.server.token("alice")}})

        @fuzzing
        @given(st.lists(lines, max_size=3), st.booleans())
        def send(asked: list[str], known: bool) -> None:
            frames = [connect, *asked] if known else asked
            answers = live.do(talked(live.server.port, "/connection/websocket", lambda _: frames, 0, CENTRIFUGE_END))
            for text in check(answers, repr(asked).encode(errors="replace")):
                for reply in text.split("\n"):
                    assert json.loads(reply).keys() <= {"id", "error", "push", *codec_model.METHODS}
            live.has_not_grown()

        send()


@given(st.binary(max_size=60))
def test_any_bytes_are_protobuf_commands_or_refused(data: bytes) -> None:
    for payload in (data, bytes([len(data) & 0x7F]) + data):
        try:
            text = as_json(payload)
        except BadCommand:
            continue
        for one in filter(None, text.split("\n")):
            json.loads(one)
