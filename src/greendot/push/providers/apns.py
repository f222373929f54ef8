"""Apple Push Notification service (APNs): HTTP/2, with provider tokens."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from greendot.clock import Clock
from greendot.protocol.decoding import decoder
from greendot.push.devices import APNS_TOKEN
from greendot.push.payload import (
    ProviderSender,
    PushPayload,
    SendResult,
    SingleHostSender,
    content,
    fitted,
    ids_only,
    short,
)
from greendot.push.providers.responses import describe, no_answer, read, trouble, word
from greendot.push.providers.signing import SigningKey, ec_key
from greendot.store.push import Device
from greendot.transport.http2_client import MultiplexedCaller
from greendot.transport.http_client import HttpResponse, NotCalled, Terms

URLS = {"production": "https://api.push.apple.com", "sandbox": "https://api.sandbox.push.apple.com"}
MOST_BYTES = 4_096
MOST_COLLAPSE = 64  # bytes
RENEW_S = 2_400.0  # Apple accepts a token for an hour, and a new one at most every 20 minutes
RENEW_EARLY_S = 60.0  # minimum age before a token that Apple calls expired is replaced; a wrong clock can cause that
IDS = UUID("6f0d3f2e-51c3-5a35-9d4b-2f6f2f6b8a01")  # namespace of ids made from keys; must never change
# Errors of the device, not of the request.
GONE = {"BadDeviceToken", "Unregistered", "ExpiredToken"}


class Account(Struct, frozen=True):
    """Key of a developer team, and the app that gets the pushes."""

    key: str  # the .p8 file
    key_id: str
    team_id: str
    topic: str  # the app's bundle id
    place: Literal["production", "sandbox"] = "production"


class _Refusal(Struct):
    reason: str = ""
    timestamp: int | None = None  # milliseconds UTC since when the device is gone


_encode = msgspec.json.encode
_refusal = decoder(_Refusal)


class ProviderTokens:
    """Provider token of the requests, made anew every 40 minutes."""

    def __init__(self, account: Account, clock: Clock) -> None:
        self._key: SigningKey = ec_key(account.key, account.key_id)
        self._team = account.team_id
        self._clock = clock
        self._token = ""
        self._made = 0.0  # monotonic seconds

    def token(self) -> str:
        if not self._token or self._clock.monotonic() - self._made >= RENEW_S:
            self._token = self._key.sign({"iss": self._team, "iat": self._clock.now_ms() // 1000})
            self._made = self._clock.monotonic()
        return self._token

    def ended(self, token: str) -> bool:
        """Handle a token that Apple calls expired; return whether there is another one now.

        A token younger than `RENEW_EARLY_S` stays: Apple refuses many new tokens in a short time.
        """
        if token == self._token and self._clock.monotonic() - self._made >= RENEW_EARLY_S:
            self._token = ""
        return self.token() != token


class Apns(SingleHostSender):
    """Sender to one app.

    `placeholder` is shown for a notification without title and text: the app's extension may replace it with fetched
    content. Without a placeholder such a notification wakes the app in the background, which Apple does not promise.
    """

    def __init__(
        self, account: Account, terms: Terms, clock: Clock, *, url: str | None = None, placeholder: str = ""
    ) -> None:
        self._topic = account.topic
        self._tokens = ProviderTokens(account, clock)
        self._caller: MultiplexedCaller = MultiplexedCaller(url or URLS[account.place], terms)
        self._clock = clock
        self._placeholder = placeholder

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        if not APNS_TOKEN.fullmatch(device.token):
            return SendResult("gone", "the device's token is not an APNs token")
        try:
            answer = await self._post(device, payload)
            if answer.status == 413:
                answer = await self._post(device, ids_only(payload))
        except NotCalled as error:
            return no_answer(error)
        return SendResult("sent") if answer.status == 200 else self._refused(answer, device)

    async def _post(self, device: Device, payload: PushPayload) -> HttpResponse:
        """Send a request, again with a new token if the present one has expired."""
        payload, body = fitted(payload, self._payload, MOST_BYTES)
        headers, target = self._headers(payload), f"/3/device/{device.token}"
        token = self._tokens.token()
        answer = await self._caller.post(body, headers | {"authorization": f"bearer {token}"}, target)
        if answer.status != 403 or _reason(answer) != "ExpiredProviderToken" or not self._tokens.ended(token):
            return answer
        return await self._caller.post(body, headers | {"authorization": f"bearer {self._tokens.token()}"}, target)

    def _is_shown(self, payload: PushPayload) -> bool:
        return bool(payload.title is not None or payload.text is not None or self._placeholder)

    def _headers(self, payload: PushPayload) -> dict[str, str]:
        is_shown = self._is_shown(payload)
        headers = {
            "apns-id": str(uuid5(IDS, payload.key)),
            "apns-topic": self._topic,
            "apns-push-type": "alert" if is_shown else "background",
            "apns-priority": "10" if is_shown and payload.importance != "low" else "5",
            # A push replaces an earlier one with the same id: a push sent twice is shown once.
            "apns-collapse-id": short(payload.collapse or payload.key, MOST_COLLAPSE),
        }
        if payload.expires_at is not None:
            headers["apns-expiration"] = str(max(1, payload.expires_at // 1000))  # 0: only if the device is on
        return headers

    def _payload(self, payload: PushPayload) -> bytes:
        aps: dict[str, Any] = {"content-available": 1}
        if self._is_shown(payload):
            shown = {"title": payload.title, "body": payload.text}
            if payload.title is None and payload.text is None:
                shown = {"title": None, "body": self._placeholder}
            aps = {"alert": {name: text for name, text in shown.items() if text is not None}, "mutable-content": 1}
            if payload.importance != "low":
                aps["sound"] = "default"
        return _encode({"aps": aps, "greendot": content(payload, shown=False)})

    def _refused(self, answer: HttpResponse, device: Device) -> SendResult:
        found = read(_refusal, answer.body) or _Refusal()
        error = word(found.reason)
        reason = describe(self._caller.host, answer.status, error)
        if answer.status == 410 or error in GONE:
            if found.timestamp is not None and found.timestamp < device.created_at:
                return SendResult("failed", f"{reason}, for a time before the device was registered")
            return SendResult("gone", reason)
        if answer.status == 429 and error == "TooManyRequests":
            return SendResult("failed", reason)  # for this device only
        if answer.status == 429 or answer.status >= 500 or error == "ExpiredProviderToken":
            return trouble(self._caller.host, answer, self._clock.now_ms(), error)
        return SendResult("refused", reason)


_: type[ProviderSender] = Apns


def _reason(answer: HttpResponse) -> str:
    found = read(_refusal, answer.body)
    return found.reason if found is not None else ""
