"""HTTP client for calls to apps and providers, at hosts that apps or users may have chosen.

`resolver` looks the host name up, apart from the event loop's own look-ups, and every address of the host is checked.
The connection goes to a checked address, so a later change of the name has no effect. Redirects and the environment's
proxies are not followed. Time and size of the answer are bounded. TLS is verified, with the machine's certificates or a
given file.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpcore2

from greendot.errors import GreendotError
from greendot.transport.address_model import Network, is_allowed, is_public
from greendot.transport.resolver import CONFIGURED, STRANGERS, NotResolved, Resolver, ResolverBusy

MOST_ANSWER = 64 * 1024  # bytes of an answer that are read; a longer answer closes its connection
CONNECT_S = 5.0
KEEP_S = 30.0

# At level DEBUG, httpcore2 logs what it sends, including keys.
logging.getLogger("httpcore2").setLevel(logging.WARNING)


class NotCalled(GreendotError):
    """Outbound call without an answer.

    The message may be logged: it names the host, and nothing else of the URL.
    """


class NotAllowed(NotCalled):
    """Outbound call that was not made because the address is not allowed."""


class NotTried(NotCalled):
    """Outbound call that was not made because too many others are under way. The host is not at fault."""


class HttpResponse(NamedTuple):
    """Response of an outbound call."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes  # at most the first MOST_ANSWER bytes


class Terms:
    """Conditions of outbound calls. OSError if `ca_file` cannot be read."""

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        timeout_s: float = 10.0,
        ca_file: str = "",
        listed_in: str = "webhooks.allow_private",
    ) -> None:
        self.allowed = allowed  # networks outside the public internet that may be called
        self.timeout_s = timeout_s  # time for the whole call, from resolving the name to the last byte
        self.tls = ssl.create_default_context(cafile=ca_file or None)
        self.ca_file = ca_file
        self.listed_in = listed_in  # name of the setting that `allowed` comes from
        self.configured = Resolver(CONFIGURED)  # for hosts named in the settings
        self.strangers = Resolver(STRANGERS)  # for hosts that users chose


class Caller:
    """Client of one URL that keeps at most `most` connections.

    One caller has one host: callers that shared connections would accept the certificate of one name for another.
    `tenant` is the tenant whose users chose the host; None if the settings name it.
    """

    def __init__(self, url: str, terms: Terms, *, most: int = 2, tenant: str | None = None) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self._url = url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._timeout_s = terms.timeout_s
        self._calls = 0  # calls that wait for an answer
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=terms.tls,
            max_connections=most,
            keepalive_expiry=KEEP_S,
            network_backend=_Checked(terms, plain=url.startswith("http:"), tenant=tenant),
        )

    @property
    def is_idle(self) -> bool:
        return not self._calls

    async def post(self, body: bytes, headers: Mapping[str, str], target: str | None = None) -> HttpResponse:
        """POST to the URL, or to another `target` at its host. Raise NotCalled if there is no answer in time."""
        sent = {"Content-Type": "application/json", "User-Agent": "Greendot", **headers}
        url = self._url if target is None else self._origin + target
        self._calls += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(url, body, sent)
        except NotCalled:
            raise
        except TimeoutError:
            raise NotCalled(f"{self.host} did not answer within {self._timeout_s:g} s") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError) as error:
            raise NotCalled(f"{self.host} could not be reached: {words(error)}") from None
        except httpcore2.LocalProtocolError:
            # The text of the error may contain parts of the request.
            raise NotCalled(f"{self.host} was not called: the request is not valid HTTP") from None
        except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            raise NotCalled(f"{self.host} violated the HTTP protocol: {words(error)}") from None
        finally:
            self._calls -= 1

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        limits = {"connect": CONNECT_S, "pool": self._timeout_s, "read": self._timeout_s, "write": self._timeout_s}
        async with self._pool.stream(
            "POST", url, headers=[*headers.items()], content=body, extensions={"timeout": limits}
        ) as response:
            start = bytearray()
            async for part in response.aiter_stream():
                start += part
                if len(start) > MOST_ANSWER:
                    break
            named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return HttpResponse(response.status, named, bytes(start[:MOST_ANSWER]))

    async def close(self) -> None:
        await self._pool.aclose()


class Callers:
    """Clients of hosts that users chose, one for each tenant and origin. The `most` last used are kept."""

    def __init__(self, terms: Terms, *, most: int, most_each: int) -> None:
        self._terms = terms
        self._most = most
        self._most_each = most_each
        self._callers: dict[tuple[str, str], Caller] = {}  # by tenant and origin, last used at the end

    async def post(self, tenant: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST to the URL.

        Raise NotCalled without an answer in time, NotTried if all callers are busy with other hosts.
        """
        parts = urlsplit(url)
        key = tenant, f"{parts.scheme}://{parts.netloc}"
        caller = self._callers.pop(key, None)
        if caller is None:
            await self._make_room()
            caller = self._callers.pop(key, None) or Caller(key[1], self._terms, most=self._most_each, tenant=tenant)
        self._callers[key] = caller
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return await caller.post(body, headers, target)

    async def _make_room(self) -> None:
        if len(self._callers) >= self._most:
            oldest = next((key for key, caller in self._callers.items() if caller.is_idle), None)
            if oldest is None:
                raise NotTried(f"{self._most} other hosts are being called; retry later")
            await self._callers.pop(oldest).close()

    async def close(self) -> None:
        while self._callers:
            _, caller = self._callers.popitem()
            await caller.close()


class _Checked(httpcore2.AsyncNetworkBackend):
    """Network backend that connects only to addresses that may be called."""

    def __init__(self, terms: Terms, *, plain: bool, tenant: str | None) -> None:
        self._terms = terms
        self._plain = plain
        self._tenant = tenant
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
        for address in await checked_addresses(host, self._terms, plain=self._plain, tenant=self._tenant):
            try:
                return _Stream(await self._backend.connect_tcp(address, port, timeout, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        raise trouble or NotCalled(f"{host} has no address")


class _Stream(httpcore2.AsyncNetworkStream):
    """Network stream that is closed also if the call is cancelled during the TLS handshake."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


async def checked_addresses(
    host: str, terms: Terms, *, plain: bool = False, tenant: str | None = None
) -> Sequence[str]:
    """Return all addresses of the host. Raise NotAllowed if even one of them must not be called.

    A name with one forbidden address is a trap, and its other addresses are not trusted either. Raise NotCalled if the
    name cannot be resolved, NotTried if the resolver is busy. `tenant` is the tenant whose users chose the host; None
    if the settings name it.
    """
    try:
        if tenant is None:
            addresses = await terms.configured.addresses(host)
        else:
            addresses = await terms.strangers.addresses(host, tenant)
    except NotResolved as error:
        raise NotCalled(str(error)) from None
    except ResolverBusy as error:
        raise NotTried(str(error)) from None
    for address in addresses:
        if is_allowed(address, terms.allowed):
            continue
        if not is_public(address):
            raise NotAllowed(
                f"{host} resolves to {address}, which is not a public address. To allow calls to it, "
                f"list its network in {terms.listed_in}."
            )
        if plain:
            raise NotAllowed(
                f"{host} is public and its URL has no TLS. Use https, or list its network in {terms.listed_in}."
            )
    return addresses


def words(error: BaseException) -> str:
    """Return the first line of the error's text, or its type."""
    return str(error).partition("\n")[0][:200] or type(error).__name__
