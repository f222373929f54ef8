"""HTTP requests to a Greendot server: retried where that is harmless, and decoded into a type."""

from __future__ import annotations

import os
import random
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from greendot import __version__
from greendot.ids import ID_RULE, valid_id
from greendot.protocol.decoding import decode
from greendot.sdk.errors import BadAnswer, Problem, RateLimited, ServerError, Unavailable, Unreachable, problem_kind

T = TypeVar("T")

IDLE_S = 3.0  # seconds after which an idle connection is not reused: the server closes it after 5 s
MOST_CONNECTIONS = 100  # per process
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_PHRASES = {int(status): status.phrase for status in HTTPStatus}
_MOST_DETAIL = 500  # characters of a response that is no problem document


class Hidden:
    """Secret that no repr, log line or error report shows."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<hidden>"


@dataclass(frozen=True)
class Patience:
    """Number and length of waits for a server that cannot answer now."""

    retries: int = 2  # attempts after the first
    timeout_s: float = 10.0  # seconds without a byte; if the server asks for a longer wait, the error is raised instead
    base_s: float = 0.2
    cap_s: float = 5.0
    random: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep

    def delay(self, failures: int, retry_after_s: float | None) -> float | None:
        """Return the seconds before the next attempt, after `failures` attempts; None if there is none."""
        if failures > self.retries or (retry_after_s is not None and retry_after_s > self.timeout_s):
            return None
        jitter = self.random() * min(self.cap_s, self.base_s * 2.0 ** min(failures, 16))
        return jitter if retry_after_s is None else retry_after_s + jitter * 0.1


@dataclass(frozen=True)
class Call:
    """Request to the API. `repeatable`: it is idempotent and may be sent again without a response."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str | int] | None = None
    repeatable: bool = True


class _ProblemBody(msgspec.Struct):
    title: str = ""
    detail: str = ""
    code: str | None = None


class Http:
    """Connections to one server, kept open and shared by all threads. A forked process opens its own."""

    def __init__(self, url: str, key: str, patience: Patience) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            # The message does not show the address, which may contain a password.
            raise ValueError("the address of a server is like http://127.0.0.1:8000, without a user or a query")
        self.url = url.rstrip("/")
        self._key = Hidden(key)
        self._patience = patience
        self._clients: dict[int, httpx2.Client] = {}  # by process: sockets must not be shared with a parent

    def call(self, call: Call, kind: type[T]) -> T:
        """Send a request, with retries; return the response as `kind`. Raise a ServerError."""
        failures = 0
        while True:
            result = self._try(call)
            if isinstance(result, bytes):
                return _read(result, kind)
            error, may_repeat = result
            failures += 1
            wait = self._patience.delay(failures, getattr(error, "retry_after_s", None)) if may_repeat else None
            if wait is None:
                raise error
            self._patience.sleep(wait)

    def close(self) -> None:
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _try(self, call: Call) -> bytes | tuple[ServerError, bool]:
        """Send a request once; return the body, or the error and whether a retry may help and is harmless."""
        try:
            answer = self._client().request(
                call.method,
                self.url + call.path,
                params=call.query or None,
                content=None if call.body is None else msgspec.json.encode(call.body),
            )
        except _NOT_SENT as error:
            return Unreachable(f"no server answers at {self.url} ({type(error).__name__})"), True
        except httpx2.HTTPError as error:
            # The original error is dropped: it holds the request, which holds the key.
            return Unreachable(f"the answer of {self.url} was lost ({type(error).__name__})"), call.repeatable
        if answer.is_success:
            return answer.content
        problem = _problem(answer)
        return problem, isinstance(problem, RateLimited) or (isinstance(problem, Unavailable) and call.repeatable)

    def _client(self) -> httpx2.Client:
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            made = self._make()
            client = self._clients.setdefault(process, made)  # another thread may have been faster
            if client is not made:
                made.close()
        return client

    def _make(self) -> httpx2.Client:
        headers = {"Content-Type": "application/json", "User-Agent": f"greendot-python/{__version__}"}
        if self._key.text:
            headers["Authorization"] = f"Bearer {self._key.text}"
        is_secure = self.url.startswith("https:")
        return httpx2.Client(
            headers=headers,
            verify=_trusted(is_secure),
            timeout=self._patience.timeout_s,
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=IDLE_S),
            follow_redirects=False,  # the key is only for this server
            # Proxies of the environment may carry TLS, which they cannot change. Plain HTTP never uses them.
            trust_env=is_secure,
        )


def _trusted(is_secure: bool) -> ssl.SSLContext:
    """Return the TLS context: certificates of the machine or of SSL_CERT_FILE; none for plain HTTP."""
    # Plain HTTP skips the machine's certificates: reading them takes longer than many requests.
    return ssl.create_default_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _read(content: bytes, kind: type[T]) -> T:
    if kind is type(None):
        return None
    try:
        return decode(content, kind)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"cannot read the server's {kind.__name__}: {error}") from None


def _problem(answer: httpx2.Response) -> Problem:
    status = answer.status_code
    try:
        said = decode(answer.content, _ProblemBody)
    except msgspec.DecodeError:
        # The listener, or a proxy in front of it, answers in plain text.
        said = _ProblemBody(detail=answer.content[:_MOST_DETAIL].decode(errors="replace").strip())
    title = said.title or _PHRASES.get(status, "")
    wait = _seconds(answer.headers.get("Retry-After", ""))
    return problem_kind(status)(status, title, said.detail, code=said.code, retry_after_s=wait)


def _seconds(text: str) -> float | None:
    # A date, as some proxies send, is left to the backoff: it would be compared with another clock.
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def checked(what: str, text: str) -> str:
    """Return `text` if it is a valid id; else raise ValueError, because it could change the path of a request."""
    if not isinstance(text, str) or not valid_id(text):
        raise ValueError(f"{what} is not a valid id: {ID_RULE}")
    return text


def given(**fields: object) -> dict[str, object]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def query(**fields: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in fields.items() if value is not None}


def seconds(duration: float | timedelta | None) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def new_key() -> str:
    """Return a key that names one message or notification, so that a retry is the same one."""
    return secrets.token_hex(12)
