"""Calling an app or a provider over HTTP, at an address that somebody else chose.

The name is resolved here, every address it has is checked, and the connection goes to one that was: what the name
means a moment later does not matter. Nothing is followed (redirects, proxies of the environment), everything is bounded
(time, size of the answer). TLS is verified, with the machine's certificates or a file of one's own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpcore2
from h2.exceptions import H2Error as Http2Error

from greendot.core.addresses import Network, is_allowed, is_public
from greendot.errors import GreendotError

MOST_ANSWER = 64 * 1024  # bytes of an answer that are read; a longer one costs its connection
CONNECT_S = 5.0
KEEP_S = 30.0
KEEP_HTTP2_S = 300.0  # one connection carries everything: making it anew is noticed

# They log what is sent, keys and all, when everything is logged.
for _name in ("hpack", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class NotCalled(GreendotError):
    """There was no answer. Says why in words that may be logged: never more of the URL than its host."""


class NotAllowed(NotCalled):
    """Nobody was called: the address is one that must not be."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes  # its beginning


class Terms:
    """On which calls are made. OSError if `ca_file` cannot be read."""

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        timeout_s: float = 10.0,
        ca_file: str = "",
        listed_in: str = "webhooks.allow_private",
    ) -> None:
        self.allowed = allowed  # networks that are not of the public internet, and may be called
        self.timeout_s = timeout_s  # for all of a call: from resolving to the last byte
        self.tls = ssl.create_default_context(cafile=ca_file or None)
        self.listed_in = listed_in  # the setting that `allowed` is from


class Caller:
    """Calls one place, and keeps connections to it, at most `most`; with HTTP/2, one that carries many calls at once.

    One caller has one host: callers that share connections would take the certificate of one name for another's.
    """

    def __init__(self, url: str, terms: Terms, *, most: int = 2, http2: bool = False) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self._url = url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._terms = terms
        self._most = most
        self._http2 = http2
        self._pool = self._new_pool()
        self._calls: Counter[httpcore2.AsyncConnectionPool] = Counter()  # that wait for their answers
        self._answered = False  # something, by the present pool

    def _new_pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._terms.tls,
            max_connections=self._most,
            keepalive_expiry=KEEP_HTTP2_S if self._http2 else KEEP_S,
            http1=not self._http2,
            http2=self._http2,
            network_backend=_Checked(self._terms, plain=self._origin.startswith("http:")),
        )

    @property
    def is_idle(self) -> bool:
        return not self._calls

    async def post(self, body: bytes, headers: Mapping[str, str], target: str | None = None) -> Answer:
        """To the URL, or to another `target` at its host. NotCalled if there was no answer in time."""
        sent = {"Content-Type": "application/json", "User-Agent": "Greendot", **headers}
        url = self._url if target is None else self._origin + target
        timeout_s, pool = self._terms.timeout_s, self._pool
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post_twice(url, body, sent)
        except NotCalled:
            raise
        except TimeoutError:
            await self._leave(pool)
            raise NotCalled(f"{self.host} did not answer within {timeout_s:g} s") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError) as error:
            raise NotCalled(f"{self.host} could not be reached: {_words(error)}") from None
        except httpcore2.LocalProtocolError:
            # What it says may contain what was to be sent.
            raise NotCalled(f"{self.host} could not be asked: the request or the connection is not in order") from None
        except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol, Http2Error) as error:
            raise NotCalled(f"{self.host} does not speak HTTP as expected: {_words(error)}") from None

    async def _post_twice(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """With HTTP/2 a connection that the other side has closed meanwhile is noticed by the next call only: that one
        is made again, with a new connection."""
        pool, was_good = self._pool, self._answered
        try:
            return await self._post(pool, url, body, headers)
        except (httpcore2.NetworkError, httpcore2.ProtocolError, Http2Error):
            await self._leave(pool)
            if not (self._http2 and was_good):
                raise
        return await self._post(self._pool, url, body, headers)

    async def _post(
        self, pool: httpcore2.AsyncConnectionPool, url: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        timeout_s = self._terms.timeout_s
        limits = {"connect": CONNECT_S, "pool": timeout_s, "read": timeout_s, "write": timeout_s}
        self._calls[pool] += 1
        try:
            async with pool.stream(
                "POST", url, headers=[*headers.items()], content=body, extensions={"timeout": limits}
            ) as response:
                answer = await _answer(response)
        finally:
            await self._let_go(pool)
        self._answered = self._answered or pool is self._pool
        return answer

    async def _leave(self, pool: httpcore2.AsyncConnectionPool) -> None:
        """A connection that carries everything and does not answer any more would make everything wait: the next calls
        go by a new one. What the old one still carries may come to its end there."""
        if self._http2 and pool is self._pool:
            self._pool, self._answered = self._new_pool(), False
            if not self._calls[pool]:
                await pool.aclose()

    async def _let_go(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._calls[pool] -= 1
        if not self._calls[pool]:
            del self._calls[pool]
            if pool is not self._pool:
                await pool.aclose()

    async def close(self) -> None:
        for pool in {self._pool, *self._calls}:
            await pool.aclose()


class Callers:
    """Calls places that strangers chose, each by a caller of its own: the `most` that were called last are kept."""

    def __init__(self, terms: Terms, *, most: int, most_each: int) -> None:
        self._terms = terms
        self._most = most
        self._most_each = most_each
        self._callers: dict[str, Caller] = {}  # by origin, those called last at the end

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """NotCalled if there was no answer in time, or all callers are busy with other places."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        caller = self._callers.pop(origin, None)
        if caller is None:
            await self._make_room()
            caller = self._callers.get(origin) or Caller(origin, self._terms, most=self._most_each)
        self._callers[origin] = caller
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return await caller.post(body, headers, target)

    async def _make_room(self) -> None:
        if len(self._callers) < self._most:
            return
        oldest = next((origin for origin, caller in self._callers.items() if caller.is_idle), None)
        if oldest is None:
            raise NotCalled(f"{self._most} other places are being called")
        await self._callers.pop(oldest).close()

    async def close(self) -> None:
        while self._callers:
            _, caller = self._callers.popitem()
            await caller.close()


async def _answer(response: httpcore2.Response) -> Answer:
    start = bytearray()
    async for part in response.aiter_stream():
        start += part
        if len(start) > MOST_ANSWER:
            break
    named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    return Answer(response.status, named, bytes(start[:MOST_ANSWER]))


class _Checked(httpcore2.AsyncNetworkBackend):
    """Connections to addresses that may be called, and to no others."""

    def __init__(self, terms: Terms, *, plain: bool) -> None:
        self._allowed = terms.allowed
        self._listed_in = terms.listed_in
        self._plain = plain
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        trouble: Exception | None = None
        for address in await self._addresses(host, port):
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        raise trouble or NotCalled(f"{host} has no address")

    async def _addresses(self, host: str, port: int) -> list[str]:
        """All addresses of the name. One that may not be called spoils the name: who sets such a trap has others."""
        try:
            found = await _resolve(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NotCalled(f"{host} could not be resolved: {_words(error)}") from None
        addresses = [*dict.fromkeys(str(entry[4][0]) for entry in found)]
        for address in addresses:
            if is_allowed(address, self._allowed):
                continue
            if not is_public(address):
                raise NotAllowed(
                    f"{host} leads to {address}, which is not an address of the public internet. If it may be called, "
                    f"list its network in {self._listed_in}."
                )
            if self._plain:
                raise NotAllowed(f"{host} is outside: without TLS only networks in {self._listed_in} are called.")
        return addresses


def _words(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


async def _resolve(host: str, port: int, **wanted: int) -> Sequence[Any]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, **wanted)
