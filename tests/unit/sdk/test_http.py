"""HTTP requests of the SDK: retries, waiting times, and the contents of errors, which never include secrets."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from greendot.sdk import BadAnswer, BadKey, BadRequest, Forbidden, NotFound, Problem, RateLimited, Unavailable
from greendot.sdk.errors import ServerError, Unreachable
from greendot.sdk.http import Call, Http, Patience
from greendot.sdk.responses import Room

from .plays import KEY, Said, in_turn, playing

ROOM = Said(200, {"room": "hall", "open": True, "head": 3, "of a newer server": 1})
GET = Call("GET", "/v1/rooms/hall")
SIGNAL = Call("POST", "/v1/signals", {"kind": "wave"}, repeatable=False)


class Waiting:
    """Stand-in for `sleep` that records the waiting times and does not wait."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def patience(self, retries: int = 2, timeout_s: float = 10.0) -> Patience:
        return Patience(retries=retries, timeout_s=timeout_s, random=lambda: 1.0, sleep=self.waited.append)


def problem(status: int, **headers: str) -> Said:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": "do this instead", "code": "bad_field"}
    return Said(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def test_an_answer_is_read_into_its_type_and_what_is_new_in_it_passed_over() -> None:
    with playing(in_turn(ROOM)) as stage:
        assert stage.http().call(GET, Room) == Room("hall", True, 3)
        assert stage.asked[0].headers["Authorization"] == f"Bearer {KEY}"
        assert stage.asked[0].path == "/v1/rooms/hall"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, BadKey),
        (403, Forbidden),
        (404, NotFound),
        (413, BadRequest),
        (429, RateLimited),
        (503, Unavailable),
        (500, Problem),
        (301, Problem),
    ],
)
def test_a_refusal_carries_the_problem(status: int, kind: type[Problem]) -> None:
    with playing(in_turn(problem(status, Retry_After="7"))) as stage, pytest.raises(kind) as caught:
        stage.http(Waiting().patience(retries=0)).call(GET, Room)
    error = caught.value
    assert (error.status, error.title, error.detail, error.code) == (status, "No", "do this instead", "bad_field")
    assert error.retry_after_s == 7
    assert str(error) == f"{status} No: do this instead"


def test_a_plain_text_error_of_the_server_or_a_proxy_is_shown() -> None:
    with playing(in_turn(Said(403, b"this host is not served here\n"))) as stage, pytest.raises(Forbidden) as caught:
        stage.http().call(GET, Room)
    assert str(caught.value) == "403 Forbidden: this host is not served here"


@pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b'{"room": 1}', b"[]"])
def test_an_unreadable_answer_is_reported_as_such(body: bytes) -> None:
    with playing(in_turn(Said(200, body))) as stage, pytest.raises(BadAnswer, match="cannot read the server's Room"):
        stage.http().call(GET, Room)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_fails_for_a_moment_is_asked_for_again_after_the_time_the_server_wishes(status: int) -> None:
    waiting = Waiting()
    with playing(in_turn(problem(status, Retry_After="4"), problem(status), ROOM)) as stage:
        assert stage.http(waiting.patience()).call(GET, Room).head == 3
        assert len(stage.asked) == 3
    assert waiting.waited == [pytest.approx(4.04), pytest.approx(0.8)]


def test_what_is_refused_for_good_is_not_asked_for_again() -> None:
    with playing(in_turn(problem(400), ROOM)) as stage:
        with pytest.raises(BadRequest):
            stage.http(Waiting().patience()).call(GET, Room)
        assert len(stage.asked) == 1


def test_tries_come_to_an_end() -> None:
    waiting = Waiting()
    with playing(in_turn(problem(503))) as stage:
        with pytest.raises(Unavailable):
            stage.http(waiting.patience(retries=3)).call(GET, Room)
        assert len(stage.asked) == 4
    assert waiting.waited == [pytest.approx(0.4), pytest.approx(0.8), pytest.approx(1.6)]


def test_a_wait_longer_than_the_time_limit_of_a_call_is_raised_as_an_error() -> None:
    with playing(in_turn(problem(429, Retry_After="60"), ROOM)) as stage, pytest.raises(RateLimited) as caught:
        stage.http(Waiting().patience()).call(GET, Room)
    assert caught.value.retry_after_s == 60


@pytest.mark.parametrize("odd", ["soon", "-1", "1e3", "9999999999999", "Wed, 21 Oct 2099 07:28:00 GMT", "½"])
def test_an_odd_time_to_wait_is_left_to_the_back_off(odd: str) -> None:
    waiting = Waiting()
    with playing(in_turn(problem(503, Retry_After=odd.encode("ascii", "ignore").decode() or "x"), ROOM)) as stage:
        stage.http(waiting.patience()).call(GET, Room)
    assert waiting.waited == [pytest.approx(0.4)]


def test_a_lost_answer_is_asked_for_again_only_where_that_does_nothing_twice() -> None:
    with playing(in_turn(Said(0), ROOM)) as stage:
        assert stage.http(Waiting().patience()).call(GET, Room).head == 3
    with playing(in_turn(Said(0), Said(202))) as stage:
        with pytest.raises(Unreachable, match=r"the answer of http://127.* was lost"):
            stage.http(Waiting().patience()).call(SIGNAL, type(None))
        assert len(stage.asked) == 1


def test_what_may_not_be_done_twice_is_asked_for_again_where_it_was_not_done() -> None:
    with playing(in_turn(problem(429), Said(202))) as stage:
        stage.http(Waiting().patience()).call(SIGNAL, type(None))
        assert len(stage.asked) == 2
    with playing(in_turn(problem(503), Said(202))) as stage, pytest.raises(Unavailable):
        stage.http(Waiting().patience()).call(SIGNAL, type(None))


def test_an_address_without_a_server_is_tried_again_and_then_reported() -> None:
    waiting = Waiting()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"no server answers at {url}"):
            Http(url, KEY, waiting.patience()).call(SIGNAL, type(None))
    assert len(waiting.waited) == 2


def test_a_server_that_does_not_respond_is_given_up() -> None:
    silent = threading.Event()
    with playing(lambda _: silent.wait(5) and ROOM) as stage:
        try:
            with pytest.raises(Unreachable, match="ReadTimeout"):
                stage.http(Patience(retries=0, timeout_s=0.1)).call(GET, Room)
        finally:
            silent.set()


@pytest.mark.parametrize("answer", [Said(0), Said(200, b"no"), problem(401), problem(503)])
def test_no_error_shows_the_key(answer: Said) -> None:
    with playing(in_turn(answer)) as stage, pytest.raises(ServerError) as caught:
        stage.http(Waiting().patience(retries=1)).call(GET, Room)
    error = caught.value
    assert (error.__cause__, error.__context__ and error.__suppress_context__) in [(None, None), (None, True)]
    # Format the error as error reports do, with the local variables of every frame.
    report = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "_try" in report or "_read" in report or "self = " in report
    assert "nobody-may-see" not in report


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ws://h/", "http://", "http://u:secret@h/", "http://h/?key=secret"])
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="the address of a server is like") as caught:
        Http(url, KEY, Patience())
    assert "secret" not in str(caught.value)


def test_connections_are_kept_and_shared_by_threads() -> None:
    with playing(in_turn(ROOM)) as stage:
        http = stage.http()
        with ThreadPoolExecutor(4) as threads:
            found = [*threads.map(lambda _: http.call(GET, Room), range(60))]
        assert len(found) == len(stage.asked) == 60
        assert len({asked.connection for asked in stage.asked}) <= 4


def test_a_forked_process_makes_connections_of_its_own() -> None:
    with playing(in_turn(ROOM)) as stage:
        http = stage.http()
        http.call(GET, Room)
        child = os.fork()
        if child == 0:
            try:
                http.call(GET, Room)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        http.call(GET, Room)
        parent, forked, again = [asked.connection for asked in stage.asked]
        assert parent == again != forked
