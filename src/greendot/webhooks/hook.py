"""Hook of one tenant: sends signed events to the app's URL and keeps the state of that URL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from greendot.clock import Clock
from greendot.engine.port import Transition
from greendot.ids import new_message_id
from greendot.protocol.webhooks import (
    DELIVERY,
    PING,
    SIGNATURE,
    Audited,
    CreatedFor,
    HookDelivery,
    HookEvent,
    OfRoom,
    OfUser,
    UpdatedFor,
    signature,
)
from greendot.store.webhooks import Queued
from greendot.store.wire import message_event
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.spans import parent, span
from greendot.telemetry.traceparent import TRACEPARENT, read
from greendot.transport.http_client import Caller, HttpResponse, NotCalled
from greendot.webhooks.model import Verdict, verdict


class HookCounts(Struct):
    """Counters of one hook on a node; `Webhooks.items` adds them up."""

    requests: int = 0
    failures: int = 0
    events: int = 0  # accepted by the app
    dropped: int = 0  # signals not accepted in time
    dead: int = 0  # record events not accepted in time
    held: int = 0  # 1 if this node holds the queue

    def items(self) -> dict[str, int]:
        """Return the counters by metric name."""
        return {
            "webhooks_requests_total": self.requests,
            "webhooks_failures_total": self.failures,
            "webhooks_events_total": self.events,
            "webhooks_dropped_total": self.dropped,
            "webhooks_dead_total": self.dead,
            "webhooks_queues": self.held,
        }


class Hook:
    """Hook of one tenant. Logs contain no event data, and of the URL only the host."""

    def __init__(
        self, tenant: str, url: str, secrets: Sequence[str], wanted: Collection[str], caller: Caller, clock: Clock
    ) -> None:
        self.tenant = tenant
        self.wanted = frozenset(wanted)
        # A stop is stored for this hash, so for this URL only. The URL itself may contain secrets and is not stored.
        self.place = blake2b(url.encode(), digest_size=12).hexdigest()
        self.stopped = False  # the app wants no more events at this URL
        self.gone: str | None = None  # reason of a stop that is not in the store yet
        self.counts = HookCounts()
        self._secrets = [secret for secret in secrets if secret]
        self._caller = caller
        self._clock = clock
        self._trouble: str | None = None

    async def send(self, events: Sequence[HookEvent], traceparent: str | None = None) -> Verdict:
        """Send the events in one attempt. `traceparent`: trace in which all of them were written, if it is one."""
        self.counts.requests += 1
        try:
            with span("webhook.send", read(traceparent), events=len(events)):
                answer = await self.post(events)
        except NotCalled as error:
            found = Verdict("failed", str(error))
        else:
            found = verdict(answer.status, answer.headers.get("retry-after"))
        if found.outcome == "taken":
            self.counts.events += len(events)
        else:
            self.counts.failures += 1
        self._note(found)
        return found

    async def post(self, events: Sequence[HookEvent]) -> HttpResponse:
        now, delivery = self._clock.now_ms(), new_message_id()
        body = msgspec.json.encode(HookDelivery(delivery, now, [*events]))
        headers = {SIGNATURE: signature(self._secrets, now // 1000, body), DELIVERY: delivery}
        if (traceparent := parent()) is not None:
            headers[TRACEPARENT] = traceparent
        return await self._caller.post(body, headers)

    async def close(self) -> None:
        await self._caller.close()

    def _note(self, found: Verdict) -> None:
        """Log a change of the outcome: once per problem, not per attempt. Stop the hook if the app is gone."""
        if found.outcome == "gone" and not self.stopped:
            log(log_events.WEBHOOK_STOPPED, tenant=self.tenant, reason=found.reason)
        elif found.outcome == "failed" and self._trouble != found.reason:
            log(log_events.WEBHOOK_FAILED, tenant=self.tenant, reason=found.reason)
        elif found.outcome == "taken" and self._trouble is not None:
            log(log_events.WEBHOOK_TAKEN, tenant=self.tenant)
        self._trouble = found.reason or None
        if found.outcome == "gone":
            self.stopped, self.gone = True, found.reason


_encode = msgspec.json.encode


def turn_type(turn: Transition) -> str:
    if turn.kind == "user":
        return "user.online" if turn.on else "user.offline"
    return "room.occupied" if turn.on else "room.vacated"


def turn_event(turn: Transition, event_id: str, at: int) -> HookEvent:
    data = OfUser(turn.name) if turn.kind == "user" else OfRoom(turn.name)
    return _event(event_id, turn_type(turn), turn.tenant, at, data)


def queued_event(queued: Queued) -> HookEvent | None:
    """Return the event, the same on every call, id included; None if its record was removed."""
    if queued.record is not None:
        data: Struct = message_event(queued.record)
        event_id = f"message-{queued.record.id}"
    elif (made := queued.notification) is not None:
        data = CreatedFor(queued.stream, made.seq, made.id, made.kind, Raw(made.body), made.created_at, made.ack)
        event_id = f"notification-{queued.stream}-{made.id}"
    elif (entry := queued.audit) is not None:
        number, at, _, actor, action, room, user, ref, reason, until, slow_mode_s = entry
        data = Audited(number, actor, action, room, user, ref, reason, until, slow_mode_s)
        event_id = f"audit-{queued.tenant}-{number}-{at}"
    elif queued.state is not None:
        data = UpdatedFor(queued.stream, queued.state, queued.ids)
        event_id = f"update-{queued.id}-{queued.at}"
    else:
        return None
    return _event(event_id, queued.type, queued.tenant, queued.at, data)


def ping_event(tenant: str, event_id: str, at: int) -> HookEvent:
    return HookEvent(event_id, PING, tenant, at, Raw(b"{}"))


def _event(event_id: str, kind: str, tenant: str, at: int, data: Struct) -> HookEvent:
    return HookEvent(event_id, kind, tenant, at, Raw(_encode(data)))
