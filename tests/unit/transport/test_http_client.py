"""HTTP client: only the checked address is called, and every response has bounded cost."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from greendot.transport import resolver
from greendot.transport.address_model import networks
from greendot.transport.http_client import (
    MOST_ANSWER,
    Caller,
    Callers,
    HttpResponse,
    NotAllowed,
    NotCalled,
    NotTried,
    Terms,
)
from receiver import Receiver, receiving
from redis_servers.tls import certificates
from waited import Lap

LOOPBACK = networks(["127.0.0.0/8"])
BODY = b'{"events":[]}'


async def post(url: str, body: bytes = BODY, **terms: Any) -> HttpResponse:
    caller = Caller(url, Terms(**{"allowed": LOOPBACK, "timeout_s": 2.0} | terms))
    try:
        return await caller.post(body, {"X-Sent": "yes"})
    finally:
        await caller.close()


async def refusal(url: str, **terms: Any) -> str:
    with pytest.raises(NotCalled) as error:
        await post(url, **terms)
    return str(error.value)


async def test_an_answer_has_the_status_headers_and_body_of_the_app() -> None:
    async with receiving() as app:
        answer = await post(app.url)
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"ok", "2")
    (request,) = app.requests
    assert (request.path, request.body) == ("/hook", BODY)
    assert request.headers["x-sent"] == "yes"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{app.port}"


async def test_connections_are_kept() -> None:
    async with receiving() as app:
        caller = Caller(app.url, Terms(allowed=LOOPBACK))
        for _ in range(5):
            await caller.post(BODY, {})
        await caller.close()
        assert app.connections == 1


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1.", "localhost"),
        *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("0.0.0.0", "0", "10.0.0.1", "169.254.169.254", "0xa9fea9fe", "192.168.0.1", "100.64.0.1", "[fe80::1]"),
        *("[fc00::1]", "224.0.0.1", "[ff02::1]", "255.255.255.255", "[2002:7f00:1::]"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_internal_host_is_called_however_the_address_is_written(scheme: str, host: str) -> None:
    async with receiving() as app:
        said = await refusal(f"{scheme}://{host}:{app.port}/secret-path", allowed=(), timeout_s=1.0)
        assert "not a public address" in said or "could not be resolved" in said, said
        assert "secret-path" not in said
        assert app.connections == 0


class _Resolver:
    """Resolver with scripted answers for one name, another at each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = [*answers]
        self.asked = 0
        real = resolver._look_up

        def look_up(host: str) -> Any:
            if host != "app.example":
                return real(host)
            self.asked += 1
            return resolver._Outcome(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

        monkeypatch.setattr(resolver, "_look_up", look_up)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["10.0.0.1", "93.184.216.34"]])
async def test_a_name_that_leads_inside_is_not_called(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    _Resolver(monkeypatch, addresses)
    async with receiving() as app:
        said = await refusal(f"https://app.example:{app.port}/", allowed=())
        assert "not a public address" in said
        assert app.connections == 0


async def test_a_name_is_resolved_once_for_a_connection_and_what_was_checked_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with receiving() as app:
        names = _Resolver(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
        answer = await post(f"http://app.example:{app.port}/")
        assert (answer.status, names.asked) == (200, 1)
        assert app.requests[0].headers["host"] == f"app.example:{app.port}"
        assert "169.254.169.254" in await refusal(f"http://app.example:{app.port}/")
        assert app.connections == 1


async def test_without_tls_only_listed_networks_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    _Resolver(monkeypatch, ["93.184.216.34"])
    assert "has no TLS" in await refusal("http://app.example/")


async def test_one_address_that_does_not_answer_does_not_matter_if_another_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _Resolver(monkeypatch, ["127.0.0.9", "127.0.0.1"])
    async with receiving() as app:
        assert (await post(f"http://app.example:{app.port}/")).status == 200


async def test_redirects_are_answers() -> None:
    async with receiving() as other:
        there = b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % other.url.encode()
        async with receiving(lambda events: there) as app:
            assert (await post(app.url)).status == 302
        assert other.requests == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as app:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await post(app.url)).status == 200
        assert proxy.requests == []


@pytest.mark.timing
@pytest.mark.parametrize("behaviour", ["hang", "drip"])
async def test_who_does_not_answer_in_time_is_given_up(behaviour: str) -> None:
    async with receiving(lambda events: behaviour) as app:
        lap = Lap()
        said = await refusal(app.url, timeout_s=0.3)
        assert "did not answer within 0.3 s" in said or "violated the HTTP protocol" in said
        assert lap.seconds < 2


async def test_an_endless_answer_is_cut_off() -> None:
    async with receiving(lambda events: "flood") as app:
        answer = await post(app.url)
        assert (answer.status, len(answer.body)) == (200, MOST_ANSWER)


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"hello\r\n\r\n", b"\x16\x03\x01", b"HTTP/1.1 2000 OK\r\n\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
    ],
)
async def test_an_invalid_http_response_is_reported_with_the_host(answer: bytes) -> None:
    class Rude(Receiver):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

    rude = Rude(lambda events: None)
    server = await asyncio.start_server(rude.serve, "127.0.0.1", 0)
    try:
        said = await refusal(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert "127.0.0.1" in said
    finally:
        server.close()


async def test_a_call_to_a_closed_port_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "could not be reached" in await refusal(f"http://127.0.0.1:{unused.getsockname()[1]}/")


async def test_certificates_are_verified_for_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates(tmp_path, ("app.example",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    _Resolver(monkeypatch, ["127.0.0.1"])
    async with receiving(tls=tls) as app:
        ours = str(made.authority)
        assert (await post(f"https://app.example:{app.port}/", ca_file=ours)).status == 200
        assert "could not be reached" in await refusal(f"https://127.0.0.1:{app.port}/", ca_file=ours)
        assert "could not be reached" in await refusal(f"https://app.example:{app.port}/")  # not a system authority
        assert len(app.requests) == 1


async def test_what_cannot_be_written_as_a_header_is_not_repeated() -> None:
    async with receiving() as app:
        caller = Caller(app.url, Terms(allowed=LOOPBACK))
        with pytest.raises(NotCalled) as error:
            await caller.post(BODY, {"Authorization": "Bearer secret\r\nX-Evil: yes"})
        await caller.close()
        assert "secret" not in str(error.value)
        assert app.requests == []


async def test_one_host_is_called_at_several_places_by_the_same_connection() -> None:
    async with receiving() as app:
        caller = Caller(app.url, Terms(allowed=LOOPBACK))
        for target in ("/a", "/b?c=d"):
            await caller.post(BODY, {}, target)
        await caller.close()
        assert [request.path for request in app.requests] == ["/a", "/b?c=d"]
        assert app.connections == 1


async def test_of_many_places_those_called_last_are_kept() -> None:
    async with receiving() as one, receiving() as two, receiving() as three:
        callers = Callers(Terms(allowed=LOOPBACK), most=2, most_each=2)
        for app in (one, two, one, three, one, two):
            answer = await callers.post("t1", f"{app.url}?q=1", BODY, {})
            assert answer.status == 200
        await callers.close()
        assert [app.connections for app in (one, two, three)] == [1, 2, 1]
        assert one.requests[0].path == "/hook?q=1"


async def test_hosts_that_do_not_answer_use_up_the_limit_and_no_call_under_way_is_cancelled() -> None:
    async with receiving(lambda events: "hang") as slow, receiving() as app:
        callers = Callers(Terms(allowed=LOOPBACK, timeout_s=1.0), most=1, most_each=1)
        hanging = asyncio.create_task(callers.post("t1", slow.url, BODY, {}))
        await asyncio.sleep(0)
        with pytest.raises(NotTried, match="1 other hosts"):
            await callers.post("t1", app.url, BODY, {})
        with pytest.raises(NotCalled, match="did not answer"):
            await hanging
        assert (await callers.post("t1", app.url, BODY, {})).status == 200
        await callers.close()


async def test_the_setting_that_would_allow_it_is_named() -> None:
    caller = Caller("https://127.0.0.1:1/", Terms(listed_in="push.allow_private"))
    with pytest.raises(NotAllowed, match=r"push\.allow_private"):
        await caller.post(BODY, {})
    await caller.close()


async def test_a_call_that_is_given_up_while_tls_is_being_agreed_on_leaves_no_connection() -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # to the end of the connection
        writer.close()
        ended.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    caller = Caller(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", Terms(allowed=LOOPBACK, timeout_s=0.5))
    try:
        with pytest.raises(NotCalled, match="did not answer"):
            await caller.post(BODY, {})
        async with asyncio.timeout(5):
            await ended.wait()
    finally:
        await caller.close()
        server.close()
