"""Firebase Cloud Messaging (FCM), HTTP v1: Android, and other platforms that an app registers there."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from greendot.clock import Clock
from greendot.protocol.decoding import decoder
from greendot.push.payload import ProviderSender, PushPayload, SendResult, SingleHostSender, fitted, ttl_s
from greendot.push.providers.google_auth import AccessTokens, ServiceAccount
from greendot.push.providers.responses import describe, no_answer, read, trouble, word
from greendot.store.push import Device
from greendot.transport.http2_client import MultiplexedCaller
from greendot.transport.http_client import HttpResponse, NotCalled, Terms

URL = "https://fcm.googleapis.com"
MOST_BYTES = 4_096  # of a message; Google counts its content only, so this is a little stricter


class _Detail(Struct, frozen=True):
    errorCode: str = ""
    fieldViolations: list[dict[str, Any]] = []


class _Error(Struct, frozen=True):
    message: str = ""
    status: str = ""
    details: list[_Detail] = []


class _Refusal(Struct, frozen=True):
    error: _Error = _Error()


_encode = msgspec.json.encode
_refusal = decoder(_Refusal)


class Fcm(SingleHostSender):
    """Sender of one FCM project."""

    def __init__(self, account: ServiceAccount, terms: Terms, clock: Clock, *, url: str = URL) -> None:
        self._tokens = AccessTokens(account, terms, clock)
        self._caller: MultiplexedCaller = MultiplexedCaller(url, terms)
        self._target = f"/v1/projects/{quote(account.project_id, safe='')}/messages:send"
        self._clock = clock

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        now = self._clock.now_ms()
        _, body = fitted(payload, lambda one: _message(one, device.token, now), MOST_BYTES + len(device.token))
        try:
            answer = await self._post(body)
        except NotCalled as error:
            return no_answer(error)
        return SendResult("sent") if answer.status == 200 else self._refused(answer)

    async def close(self) -> None:
        await self._tokens.close()
        await super().close()

    async def _post(self, body: bytes) -> HttpResponse:
        """Send a request, again with a new access token if the present one is refused."""
        token = await self._tokens.token()
        answer = await self._caller.post(body, {"authorization": f"Bearer {token}"}, self._target)
        if answer.status != 401 or _code(answer) == "THIRD_PARTY_AUTH_ERROR":
            return answer
        self._tokens.refused(token)
        headers = {"authorization": f"Bearer {await self._tokens.token()}"}
        return await self._caller.post(body, headers, self._target)

    def _refused(self, answer: HttpResponse) -> SendResult:
        code = _code(answer)
        reason = describe(self._caller.host, answer.status, code)
        if code == "UNREGISTERED" or (answer.status == 400 and _is_about_token(answer)):
            return SendResult("gone", reason)
        if answer.status in (401, 429) or answer.status >= 500:
            return trouble(self._caller.host, answer, self._clock.now_ms(), code)
        return SendResult("refused", reason)


_: type[ProviderSender] = Fcm


def _message(payload: PushPayload, token: str, now: int) -> bytes:
    data = {
        "key": payload.key,
        "id": payload.id,
        "seq": str(payload.seq),
        "kind": payload.kind,
        "created_at": str(payload.created_at),
    }
    if payload.body is not None:
        data["body"] = bytes(payload.body).decode()
    android: dict[str, Any] = {
        "priority": "NORMAL" if payload.importance == "low" else "HIGH",
        "ttl": f"{ttl_s(payload, now)}s",
    }
    message: dict[str, Any] = {"token": token, "data": data, "android": android}
    if payload.collapse is not None:
        android["collapse_key"] = payload.collapse
    if payload.title is not None or payload.text is not None:
        shown = {"title": payload.title, "body": payload.text}
        message["notification"] = {name: text for name, text in shown.items() if text is not None}
        # A push replaces an earlier one with the same tag: a push sent twice is shown once.
        android["notification"] = {"tag": payload.collapse or payload.key}
    return _encode({"message": message})


def _code(answer: HttpResponse) -> str:
    """Return FCM's own error code, or else the general one of Google's services."""
    found = read(_refusal, answer.body)
    if found is None:
        return ""
    codes = [word(detail.errorCode) for detail in found.error.details]
    return next((code for code in codes if code), word(found.error.status))


def _is_about_token(answer: HttpResponse) -> bool:
    """Return whether the token is wrong. Other errors of a request are no reason to drop the device."""
    found = read(_refusal, answer.body)
    if found is None:
        return False
    fields = [violation.get("field") for detail in found.error.details for violation in detail.fieldViolations]
    return "message.token" in fields or (not fields and "registration token" in found.error.message.lower())
