"""HTTP/2 client: calls wait only for their own responses, and every behaviour of the peer has bounded cost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes

from fake_providers import Answer, Asked, Played, playing, until
from fake_providers import http2 as played_http2
from greendot.transport import http2_client
from greendot.transport.address_model import networks
from greendot.transport.http2_client import MultiplexedCaller
from greendot.transport.http_client import MOST_ANSWER, NotAllowed, NotCalled, Terms
from receiver import receiving
from redis_servers.tls import Certificates, certificates

LOOPBACK = networks(["127.0.0.0/8"])


class Echo(Played):
    """Server that returns the request's body."""

    alpn = ["h2"]  # noqa: RUF012

    def real(self, asked: Asked) -> Answer:
        self.take(asked.body.decode(), asked)
        return Answer(200, asked.body, {"x-said": "yes"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(Path(tmp_path_factory.mktemp("tls")))


@asynccontextmanager
async def calling(made: Certificates, timeout_s: float = 10.0) -> AsyncIterator[tuple[Echo, MultiplexedCaller]]:
    async with playing(Echo(), made) as echo:
        terms = Terms(allowed=LOOPBACK, timeout_s=timeout_s, ca_file=str(made.authority))
        caller = MultiplexedCaller(echo.url, terms)
        try:
            yield echo, caller
        finally:
            await caller.close()


async def call(caller: MultiplexedCaller, body: str = "hello") -> Answer:
    return await caller.post(body.encode(), {"x-sent": "yes"}, "/where?it=goes")


async def refusal(caller: MultiplexedCaller) -> str:
    with pytest.raises(NotCalled) as error:
        await call(caller)
    return str(error.value)


async def test_an_answer_has_the_status_headers_and_body_of_the_server(made: Certificates) -> None:
    async with calling(made) as (echo, caller):
        answer = await call(caller)
        assert (answer.status, answer.body, answer.headers) == (200, b"hello", {"x-said": "yes"})
        (asked,) = echo.asked
        assert (asked.path, asked.headers["x-sent"]) == ("/where?it=goes", "yes")
        assert asked.headers[":authority"] == f"127.0.0.1:{echo.port}"


async def test_every_request_gets_its_own_answer(made: Certificates) -> None:
    async with calling(made) as (echo, caller):
        answers = await asyncio.gather(*(call(caller, f"{n}") for n in range(500)))
        assert [int(answer.body) for answer in answers] == [*range(500)]
        assert echo.connected == 1


@pytest.mark.parametrize("streams", [1, 7])
async def test_no_more_are_open_at_once_than_the_other_side_allows(
    made: Certificates, monkeypatch: pytest.MonkeyPatch, streams: int
) -> None:
    monkeypatch.setattr(played_http2, "STREAMS", streams)  # the fake server treats more as an error
    async with calling(made) as (echo, caller):
        answers = await asyncio.gather(*(call(caller, f"{n}") for n in range(50)))
        assert {answer.status for answer in answers} == {200}
        assert echo.connected == 1


async def test_when_more_are_allowed_more_are_sent(made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """APNs raises its limit after the first valid token."""
    monkeypatch.setattr(played_http2, "STREAMS", 1)
    async with calling(made, timeout_s=3.0) as (echo, caller):
        echo.script.extend(["hang", None, None])
        calls = [asyncio.create_task(call(caller, f"{n}")) for n in range(3)]
        await until(lambda: len(echo.asked) == 1)
        (connection,) = echo.connections
        connection._state.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 10})
        connection._flush()
        assert (await calls[1]).body == b"1"
        assert (await calls[2]).body == b"2"
        calls[0].cancel()


async def test_a_call_cancelled_while_it_waits_for_a_stream_takes_no_stream(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(played_http2, "STREAMS", 1)
    async with calling(made) as (echo, caller):
        await call(caller)
        echo.script.append("hang")
        first, second, third = (asyncio.create_task(call(caller, f"{n}")) for n in range(3))
        await until(lambda: len(echo.asked) == 2)
        second.cancel()
        first.cancel()  # the stream is reset, so the third call can begin
        assert (await third).body == b"2"


async def test_a_body_larger_than_a_window_is_refused_and_many_wait_for_the_window(made: Certificates) -> None:
    async with calling(made) as (echo, caller):
        echo.behave = lambda asked: Answer(200, asked.body[:1])
        answers = await asyncio.gather(*(call(caller, str(n) * 12_000) for n in range(10)))  # the window: 65,535 bytes
        assert [int(answer.body) for answer in answers] == [*range(10)]
        assert echo.connected == 1
        with pytest.raises(NotCalled, match="does not accept a request of 20000 bytes"):
            await call(caller, "x" * 20_000)


async def test_a_connection_that_is_dead_is_left_after_the_first_call_it_fails(made: Certificates) -> None:
    async with calling(made, timeout_s=1.0) as (echo, caller):
        await call(caller)
        (connection,) = echo.connections
        connection.transport.pause_reading()  # the peer accepts data and never answers
        assert "did not answer within 1 s" in await refusal(caller)
        assert (await call(caller)).status == 200
        assert echo.connected == 2


async def test_a_connection_that_was_silent_for_long_is_not_trusted(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(made) as (echo, caller):
        await call(caller)
        await call(caller)
        assert echo.connected == 1
        monkeypatch.setattr(http2_client, "KEEP_S", 0.0)
        await asyncio.sleep(0.01)
        await call(caller)
        assert echo.connected == 2


async def test_what_was_certainly_not_done_is_asked_again_at_once(made: Certificates) -> None:
    async with calling(made) as (echo, caller):
        await call(caller, "first")

        def refuse(asked: Asked) -> Any:
            (connection,) = echo.connections
            if asked.body == b"refused" and len(echo.asked) == 2:
                connection._state.reset_stream(connection._state.highest_inbound_stream_id, ErrorCodes.REFUSED_STREAM)
                return "hang"
            if asked.body == b"away" and len(echo.asked) == 4:
                connection._state.close_connection(last_stream_id=1)
                connection._flush()
                connection.transport.close()
                return "hang"
            return None

        echo.behave = refuse
        assert (await call(caller, "refused")).status == 200
        assert (await call(caller, "away")).status == 200
        assert echo.keys == {"first": 1, "refused": 1, "away": 1}
        assert echo.connected == 2


@pytest.mark.parametrize("does", ["reset", "goaway"])
async def test_what_may_have_been_done_is_not_asked_again(made: Certificates, does: Any) -> None:
    async with calling(made) as (echo, caller):
        echo.script.append(does)
        assert "connection" in await refusal(caller)
        assert len(echo.asked) == 1
        assert (await call(caller)).status == 200


async def test_an_endless_answer_is_cut_off(made: Certificates) -> None:
    async with calling(made) as (echo, caller):
        await call(caller)
        (connection,) = echo.connections

        def flood(asked: Asked) -> Any:
            stream = connection._state.highest_inbound_stream_id
            connection._state.send_headers(stream, [(":status", "200")])
            more(stream)
            return "hang"

        def more(stream: int) -> None:
            try:
                while size := min(16_000, connection._state.local_flow_control_window(stream)):
                    connection._state.send_data(stream, b"x" * size)
            except StreamClosedError:
                return  # the stream was reset
            connection._flush()
            asyncio.get_running_loop().call_later(0.01, more, stream)

        echo.behave = flood
        answer = await call(caller)
        assert (answer.status, len(answer.body)) == (200, MOST_ANSWER)
        echo.behave = lambda asked: None
        assert (await call(caller)).status == 200


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b"\xff" * 64])
async def test_a_response_that_is_not_http2_is_reported_with_the_host(made: Certificates, garbage: bytes) -> None:
    async with calling(made, timeout_s=1.0) as (echo, caller):
        await call(caller)

        def rubbish(asked: Asked) -> Any:
            (connection,) = echo.connections
            connection.transport.write(garbage)
            return "hang"

        echo.behave = rubbish
        assert "127.0.0.1" in await refusal(caller)
        echo.behave = lambda asked: None
        assert (await call(caller)).status == 200


async def test_a_server_without_http2_is_reported(made: Certificates) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    async with receiving(tls=tls) as app:
        terms = Terms(allowed=LOOPBACK, timeout_s=3.0, ca_file=str(made.authority))
        caller = MultiplexedCaller(f"https://127.0.0.1:{app.port}", terms)
        assert "does not support HTTP/2" in await refusal(caller)
        await caller.close()


async def test_certificates_are_verified_and_no_internal_host_is_called(made: Certificates) -> None:
    async with playing(Echo(), made) as echo:
        stranger = MultiplexedCaller(echo.url, Terms(allowed=LOOPBACK, timeout_s=3.0))
        assert "could not be reached" in await refusal(stranger)
        inside = MultiplexedCaller(echo.url, Terms(timeout_s=3.0, ca_file=str(made.authority), listed_in="push.x"))
        with pytest.raises(NotAllowed, match=r"push\.x"):
            await call(inside)
        assert echo.connected == 0
        for caller in (stranger, inside):
            await caller.close()


async def test_calls_to_a_closed_port_all_fail_after_one_connection_attempt(made: Certificates) -> None:
    async with playing(Echo(), made) as echo:
        url = echo.url
    caller = MultiplexedCaller(url, Terms(allowed=LOOPBACK, timeout_s=3.0, ca_file=str(made.authority)))
    said = await asyncio.gather(*(call(caller) for _ in range(10)), return_exceptions=True)
    assert {type(one) for one in said} == {NotCalled}
    assert "could not be reached" in str(said[0])
    await caller.close()
