"""Fetch of a key document by HTTPS: bounded in time and size, and only from the given address.

The host is resolved by `Resolver` before the HTTP client resolves it in a thread of the event loop. Otherwise a silent
name server would occupy such a thread, which Redis and PostgreSQL need, at every attempt.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import httpx2

from greendot.auth.jwks import FetchFailed
from greendot.transport.resolver import CONFIGURED, NotResolved, Resolver, ResolverBusy

MOST_BYTES: Final = 256 * 1024


class JwksFetch:
    """Fetch of one URL, with a new connection each time."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s  # for the whole fetch
        self._resolver = Resolver(CONFIGURED)
        self._tls: ssl.SSLContext | None = None  # kept while fetches succeed

    async def __call__(self) -> bytes:
        """Return the document. Raise FetchFailed with the reason if there is none."""
        tls, self._tls = self._tls, None
        try:
            if tls is None and self._is_https:
                # Loading certificates takes 50 ms, so not on the loop. They are loaded again after a failure, which new
                # ones may end.
                tls = await asyncio.to_thread(httpx2.create_ssl_context)
            async with asyncio.timeout(self._timeout_s):
                await self._resolve()
                document = await self._get(tls)
        except TimeoutError:
            raise FetchFailed(f"no answer within {self._timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise FetchFailed(f"the server cannot be reached ({type(error).__name__})") from None
        self._tls = tls
        return document

    async def _resolve(self) -> None:
        parts = urlsplit(self._url)
        host, proxies = parts.hostname or "", getproxies_environment()
        if {parts.scheme, "all"} & {*proxies} and not proxy_bypass(host):
            return  # the proxy resolves the host
        try:
            await self._resolver.addresses(host)
        except (NotResolved, ResolverBusy) as error:
            raise FetchFailed(f"the server cannot be reached: {error}") from None

    @property
    def _is_https(self) -> bool:
        return urlsplit(self._url).scheme == "https"

    async def _get(self, tls: ssl.SSLContext | None) -> bytes:
        async with (
            # A proxy of the environment may carry TLS, which it cannot change. Plain HTTP never leaves this machine.
            httpx2.AsyncClient(
                verify=tls or False, trust_env=self._is_https, follow_redirects=False, timeout=self._timeout_s
            ) as client,
            # A small compressed answer could become a large one.
            client.stream("GET", self._url, headers={"accept-encoding": "identity"}) as answer,
        ):
            if answer.status_code != 200:
                raise FetchFailed(f"the server answers with status {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise FetchFailed("the answer is compressed, which was not requested")
            document = b""
            async for part in answer.aiter_raw():
                document += part
                if len(document) > MOST_BYTES:
                    raise FetchFailed(f"the answer is larger than {MOST_BYTES // 1024} KiB")
            return document
