"""Web Push to browsers: by the push service of each browser (RFC 8030), which knows the sender by VAPID (RFC 8292)."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from greendot.clock import Clock
from greendot.push.payload import ProviderSender, PushPayload, SendResult, content, digest, fitted, ids_only, ttl_s
from greendot.push.providers.responses import describe, no_answer, trouble
from greendot.push.providers.signing import ec_key
from greendot.push.providers.webpush_subscription import (
    MOST_BYTES,
    Recipient,
    decode_subscription,
    encrypted,
    read_subscription,
)
from greendot.store.push import Device
from greendot.transport.http_client import Callers, HttpResponse, NotAllowed, NotCalled, Terms

MOST_TOPIC = 32
VAPID_S = 12 * 3_600  # seconds for which a token is valid; services accept at most a day
MOST_SERVICES = 200  # services whose tokens are kept
MOST_CALLERS = 1_000  # hosts of each tenant that are called or connected
CONNECTIONS = 20  # to each host
PUBLIC_SERVICES = (  # of Chrome, Firefox, Safari and Edge
    "fcm.googleapis.com",
    ".push.services.mozilla.com",
    ".push.apple.com",
    ".notify.windows.com",
)
URGENCY = {"low": "low", "normal": "normal", "high": "high", "critical": "high"}


_encode = msgspec.json.encode


class Vapid:
    """Tokens that identify the sender, one for each push service.

    Raise BadSigningKey if the key is not valid. `contact` is a mailto: or https: address for reports of problems.
    """

    def __init__(self, private_key: str, contact: str, clock: Clock) -> None:
        self._key = ec_key(private_key)
        self.public_key = self._key.public_point()  # browsers subscribe with it
        self._contact = contact
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}  # by origin, with the monotonic seconds of the renewal

    def header(self, origin: str) -> str:
        token, renew_at = self._tokens.get(origin, ("", 0.0))
        now = self._clock.monotonic()
        if now >= renew_at:
            ends = self._clock.now_ms() // 1000 + VAPID_S
            token = self._key.sign({"aud": origin, "exp": ends, "sub": self._contact})
            if len(self._tokens) >= MOST_SERVICES:
                self._tokens.clear()  # users may have named many hosts; new tokens cost little
            self._tokens[origin] = token, now + VAPID_S / 2
        return f"vapid t={token}, k={self.public_key}"


class WebPush:
    """Sender to all push services, for one tenant."""

    def __init__(self, vapid: Vapid, terms: Terms, clock: Clock) -> None:
        self._vapid = vapid
        self._callers = Callers(terms, most=MOST_CALLERS, most_each=CONNECTIONS)
        self._clock = clock

    def place(self, device: Device) -> str:
        try:
            return urlsplit(decode_subscription(device.token).endpoint).netloc
        except (msgspec.DecodeError, ValueError):
            return ""

    def is_known(self, place: str) -> bool:
        return place.endswith(PUBLIC_SERVICES)

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        try:
            to, recipient = read_subscription(device.token)
        except ValueError as error:
            return SendResult("gone", str(error))
        try:
            answer = await self._post(device.tenant, to.endpoint, recipient, payload)
            if answer.status == 413:
                answer = await self._post(device.tenant, to.endpoint, recipient, ids_only(payload))
        except NotAllowed as error:
            return SendResult("refused", str(error))
        except NotCalled as error:
            return no_answer(error)
        return self._meant(urlsplit(to.endpoint).hostname or "", answer)

    async def close(self) -> None:
        await self._callers.close()

    async def _post(self, tenant: str, endpoint: str, to: Recipient, payload: PushPayload) -> HttpResponse:
        _, text = fitted(payload, _encoded, MOST_BYTES)
        parts = urlsplit(endpoint)
        headers = {
            "Authorization": self._vapid.header(f"{parts.scheme}://{parts.netloc}"),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(ttl_s(payload, self._clock.now_ms())),
            "Urgency": URGENCY[payload.importance],
        }
        if payload.collapse is not None:
            headers["Topic"] = digest(payload.collapse, MOST_TOPIC)
        return await self._callers.post(tenant, endpoint, encrypted(text, to), headers)

    def _meant(self, host: str, answer: HttpResponse) -> SendResult:
        if 200 <= answer.status < 300:
            return SendResult("sent")
        if answer.status in (404, 410):
            return SendResult("gone", describe(host, answer.status))
        if answer.status == 429 or answer.status >= 500:
            return trouble(host, answer, self._clock.now_ms())
        return SendResult("refused", describe(host, answer.status))


def _encoded(payload: PushPayload) -> bytes:
    """Encode the content for a service worker, which shows the notification itself."""
    return _encode(structs.replace(content(payload), collapse=payload.collapse, importance=payload.importance))


_: type[ProviderSender] = WebPush
