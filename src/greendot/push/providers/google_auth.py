"""Access tokens of a Google service account: a signed claim is exchanged for a token that is valid for an hour."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote_plus

import msgspec
from msgspec import Struct

from greendot.clock import Clock
from greendot.protocol.decoding import decode, decoder
from greendot.push.providers.responses import describe, read, word
from greendot.push.providers.signing import SigningKey, rsa_key
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.http_client import Caller, NotCalled, Terms

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLAIM_S = 3_600
EARLY_S = 300.0  # seconds before its end when a token is renewed: the token server may be away for as long
RETRY_S = 10.0  # seconds after a failed renewal

_HEADER = re.compile(r"[!-~]+")  # characters that a header can carry


class ServiceAccount(Struct, frozen=True):
    """Fields of Google's JSON file of a service account that are needed."""

    project_id: str
    client_email: str
    private_key: str
    private_key_id: str
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105  (an address)


class _Granted(Struct):
    access_token: str
    expires_in: float


class _Denied(Struct):
    error: str = ""


_granted = decoder(_Granted)
_denied = decoder(_Denied)


def read_account(text: str) -> ServiceAccount:
    """Decode the JSON file of a service account. Raise ValueError, without any content of the file."""
    try:
        found = decode(text, ServiceAccount)
    except msgspec.ValidationError as error:
        raise ValueError(f"not the JSON file of a service account: {error}") from None
    except msgspec.DecodeError:
        raise ValueError("not the JSON file of a service account") from None
    rsa_key(found.private_key)
    return found


class AccessTokens:
    """Access token of the requests, renewed before its end.

    While the renewal fails, the old token is used to its end.
    """

    def __init__(self, account: ServiceAccount, terms: Terms, clock: Clock) -> None:
        self._account = account
        self._key: SigningKey = rsa_key(account.private_key, account.private_key_id)
        self._caller = Caller(account.token_uri, terms, most=1)
        self._clock = clock
        self._token = ""
        self._ends = self._renew_at = 0.0  # monotonic seconds
        self._refreshing: asyncio.Task[None] | None = None

    async def token(self) -> str:
        """Return a valid token; raise NotCalled if there is none and the renewal fails."""
        now = self._clock.monotonic()
        if not self._token or now >= self._ends:
            await asyncio.shield(self._renewal())
        elif now >= self._renew_at:
            self._renewal()
        return self._token

    def refused(self, token: str) -> None:
        """Drop a token that the provider has refused."""
        if token == self._token:
            self._token = ""

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._caller.close()

    def _renewal(self) -> asyncio.Task[None]:
        """Return the renewal under way, starting it if needed: one for all callers."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._renew())
            self._refreshing.add_done_callback(self._renewed)
        return self._refreshing

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._renew_at = self._clock.monotonic() + RETRY_S
            log(log_events.PUSH_NO_TOKEN, reason=error)

    async def _renew(self) -> None:
        asked_at, now_s = self._clock.monotonic(), self._clock.now_ms() // 1000
        assertion = self._key.sign(
            {
                "iss": self._account.client_email,
                "scope": SCOPE,
                "aud": self._account.token_uri,
                "iat": now_s,
                "exp": now_s + CLAIM_S,
            }
        )
        body = f"grant_type={quote_plus(GRANT)}&assertion={assertion}".encode()
        answer = await self._caller.post(body, {"Content-Type": "application/x-www-form-urlencoded"})
        granted = read(_granted, answer.body) if answer.status == 200 else None
        if granted is None or not _HEADER.fullmatch(granted.access_token):
            denied = read(_denied, answer.body)
            error = word(denied.error) if denied is not None else ""
            raise NotCalled(f"no access token: {describe(self._caller.host, answer.status, error)}")
        self._token = granted.access_token
        self._ends = asked_at + granted.expires_in
        self._renew_at = asked_at + max(granted.expires_in / 2, granted.expires_in - EARLY_S)
