"""Push webhook: an app of the tenant gets the push and sends it by its own means. Requests are signed like webhooks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from greendot.clock import Clock
from greendot.protocol.webhooks import SIGNATURE, signature
from greendot.push.payload import ProviderSender, PushContent, PushPayload, SendResult, SingleHostSender, content
from greendot.push.policy_model import Importance
from greendot.push.providers.responses import describe, no_answer, trouble
from greendot.store.push import Device
from greendot.transport.http_client import Caller, NotCalled, Terms
from greendot.webhooks.model import GONE

IDEMPOTENCY = "Idempotency-Key"
CONNECTIONS = 20
REFUSED = {400, 413, 415, 422}  # the app has understood the request, and would refuse it again


class PushRequest(Struct, frozen=True, omit_defaults=True):
    """Body of the request to the app. A push that is sent again has the same key."""

    tenant: str
    user: str
    device: str
    token: str  # as registered
    notification: PushContent
    importance: Importance
    collapse: str | None = None
    expires_at: int | None = None


class PushWebhook(SingleHostSender):
    """Sender to one URL. `secrets` are the present one and, while it is being changed, the previous one."""

    def __init__(self, url: str, secrets: Sequence[str], terms: Terms, clock: Clock) -> None:
        self._caller: Caller = Caller(url, terms, most=CONNECTIONS)
        self._secrets = [secret for secret in secrets if secret]
        self._clock = clock

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        body = msgspec.json.encode(
            PushRequest(
                device.tenant,
                device.user,
                device.device,
                device.token,
                content(payload),
                payload.importance,
                payload.collapse,
                payload.expires_at,
            )
        )
        signed = signature(self._secrets, self._clock.now_ms() // 1000, body)
        try:
            answer = await self._caller.post(body, {SIGNATURE: signed, IDEMPOTENCY: payload.key})
        except NotCalled as error:
            return no_answer(error)
        reason = describe(self._caller.host, answer.status)
        if 200 <= answer.status < 300:
            return SendResult("sent")
        if answer.status == GONE:
            return SendResult("gone", reason)
        if answer.status in REFUSED:
            return SendResult("refused", reason)
        # Also the answers to a wrong URL or secret: an operator can correct them.
        return trouble(self._caller.host, answer, self._clock.now_ms())


_: type[ProviderSender] = PushWebhook
