"""Random request bodies: each response is in the OpenAPI document, and never 500."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from e2e.processes import API_KEY, ask
from fuzz.live import Live, fuzzing, tells_nothing
from fuzz.nonsense import JSON, Nonsense
from greendot.app.http import KINDS
from greendot.http.operation import Operation, operations_of

READING = [operation for kind in KINDS for operation in operations_of(kind) if operation.body]
NONSENSE = Nonsense(["default", "lobby", "alice", "", "hint", "admin", "busy"])
BOMBS = [
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"user":"alice","kind":"k","body":' + b"[" * 60_000 + b"]" * 60_000 + b"}",
    b'{"notifications":[' + b"{}," * 9_999 + b"{}]}",
    b'{"notifications":[' + b"[]," * 50_000 + b"[]]}",
    b'{"users":[' + b'"a",' * 200_000 + b'"a"]}',
    b'{"until":' + b"9" * 100_000 + b"}",
    b'{"ttl_s":1e400,"user":"a","kind":"k","body":1}',
    b'{"before":1' + b"0" * 400 + b',"user":"alice"}',
    b'{"text":"' + b"\\ud800" * 10_000 + b'"}',
    b'{"open":true,"open":false,' * 1_000,
    b"\xef\xbb\xbf{}",
    b'"' * 1_000_000,
    b" " * 2_000_000 + b"{}",
]


def bodies(operation: Operation) -> st.SearchStrategy[bytes]:
    right = st.one_of(*map(NONSENSE.of, operation.body)).map(msgspec.json.encode)
    return st.one_of(
        right, st.builds(spoilt, right, st.floats(0, 1), st.binary(max_size=4)), JSON.map(msgspec.json.encode)
    )


def spoilt(text: bytes, where: float, by: bytes) -> bytes:
    """Replace a part of the text."""
    at = round(where * len(text))
    return text[:at] + by + text[at + len(by) :]


requests = st.sampled_from(READING).flatmap(
    lambda operation: st.tuples(
        st.just(operation), st.one_of(bodies(operation), st.binary(max_size=100), st.sampled_from(BOMBS))
    )
)


def test_any_request_body_gets_a_response_of_the_api_document(tmp_path: Path) -> None:
    with Live(tmp_path) as live:
        live.do(live.server.ask("PUT", "/v1/rooms/lobby", {"open": True}))

        @fuzzing
        @given(requests)
        def send(request: tuple[Operation, bytes]) -> None:
            operation, body = request
            path = operation.path.format(
                room="lobby", user="alice", other="bob", session="none", device="phone", seq=1, stream="none"
            )
            # `ask` checks that the response is in the document, which does not contain 500.
            asking = ask(live.server.port, operation.method, path, body, Authorization=f"Bearer {API_KEY}")
            answer = live.do(asking)
            tells_nothing(answer.body, body)
            live.has_not_grown()

        send()
