"""Attempt of one push: the sends to its devices, and the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from greendot.ids import storable
from greendot.push.payload import Sender, SendResult, make_payload
from greendot.store.inbox import Notification
from greendot.store.push import Device, Provider, Push, PushResult, Settled
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.spans import span
from greendot.telemetry.traceparent import read
from greendot.webhooks.model import pause_s

MOST_REASON = 300  # characters
LEAST_TRIES = 5  # a push that was held for a day is not given up at its first failure
AN_ERROR = "internal error in Greendot; see the server log"


async def sent_to_all(
    push: Push, notification: Notification, to: Sequence[Device], by: Mapping[Provider, Sender], *, ids_only: bool
) -> list[SendResult]:
    """Send a push to all devices concurrently. A failure at one device does not affect the other devices."""
    return await asyncio.gather(*(_sent(by[device.provider], push, notification, device, ids_only) for device in to))


async def _sent(sender: Sender, push: Push, notification: Notification, device: Device, ids_only: bool) -> SendResult:
    try:
        with span("push.send", read(notification.traceparent), provider=device.provider):
            return await sender.send(device, make_payload(push, notification, device, ids_only=ids_only))
    except Exception as error:
        log(log_events.PUSH_FAILED, error, message=push.id, tenant=push.tenant, provider=device.provider)
        return SendResult("failed", AN_ERROR)


class Attempt(NamedTuple):
    """Attempt of a push, with the values that decide its outcome."""

    push: Push
    now: int
    give_up_ms: int
    chance: float  # random, 0 to 1: pushes that failed together are not retried together

    def settled(self, reason: str, to: Sequence[Device], sent: Sequence[SendResult], expires_at: int | None) -> Settled:
        """Return the outcome after the sends: over, to be retried, or given up."""
        results = {result.device: result for result in self.push.results}
        for device, one in zip(to, sent, strict=True):
            results[device.device] = self._result(device, one, results.get(device.device))
        tried = any(one.is_tried for one in sent)
        found = Settled(
            self.push.id,
            reason,
            results=[*results.values()],
            tried=tried,
            sent=[device.device for device, one in zip(to, sent, strict=True) if one.outcome == "sent"],
        )
        if any(one.outcome == "failed" for one in sent):
            return self._retry(found, max(one.wait_s for one in sent), expires_at)
        there = {device.device for device in self.push.devices}
        refused = [one.reason for one in found.results if one.outcome == "refused" and one.device in there]
        return self._given_up(found, refused[0]) if refused else found

    def put_off(self, reason: str) -> Settled:
        """Return the outcome of a push that could not be sent at all: to be retried, or in the end given up."""
        found = Settled(self.push.id, storable(reason), results=self.push.results, tried=True)
        return self._retry(found, 0.0, None)

    def _result(self, device: Device, sent: SendResult, before: PushResult | None) -> PushResult:
        attempts = sent.is_tried + (before.attempts if before is not None else 0)
        return PushResult(
            device.device, device.provider, sent.outcome, self.now, attempts, storable(sent.reason[:MOST_REASON])
        )

    def _retry(self, found: Settled, wait_s: float, expires_at: int | None) -> Settled:
        # A send that was held back is no failure: its wait grows by itself.
        attempts = self.push.attempts + found.tried
        again_s = pause_s(attempts, self.chance, wait_s) if found.tried else wait_s
        due_at = self.now + round(again_s * 1000)
        is_late = due_at >= self.push.created_at + self.give_up_ms and attempts >= LEAST_TRIES
        if is_late or (expires_at is not None and due_at >= expires_at):
            failed = (result.reason for result in found.results if result.outcome == "failed")
            return self._given_up(found, next(failed, found.reason))
        return structs.replace(found, due_at=due_at)

    def _given_up(self, found: Settled, why: str) -> Settled:
        log(log_events.PUSH_GIVEN_UP, message=self.push.id, tenant=self.push.tenant, reason=why[:MOST_REASON])
        return structs.replace(found, is_dead=True)
