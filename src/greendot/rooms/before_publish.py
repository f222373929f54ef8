"""Webhook before publishing: the app allows, changes or refuses messages and edits of users.

Each message of a user waits for the answer of the app. Commands of one connection run one after the other, so the order
of a user's messages is kept. If the app does not answer, a setting decides. Each tenant has its own app, and does not
wait for other apps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.errors import GreendotError, Refused
from greendot.ids import TEXT_PATTERN
from greendot.node.context import NodeContext
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Err
from greendot.protocol.decoding import decode, has_vast_number, is_too_deep
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

MOST_WAITING = 1_000  # messages of a tenant that wait for answers; further ones are refused
FAILURES = 3  # failures in a row after which calls pause
REST_S = 5.0  # seconds of the pause
RETRY_MS = 1_000


class PublishQuestion(Struct, frozen=True, omit_defaults=True):
    """Body of a request: a message, or an edit of one, that a user wants to publish."""

    tenant: str
    room: str
    user: str
    op: Literal["send", "edit"]
    body: Raw
    name: str | None = None
    ref: int | None = None  # number of the edited message
    key: str | None = None


class PublishAnswer(Struct, frozen=True):
    """Body of the app's answer."""

    action: Literal["allow", "change", "refuse"]
    body: Raw | UnsetType = UNSET  # with `change`
    reason: Annotated[str, Meta(max_length=500, pattern=TEXT_PATTERN)] | None = None  # for the client, with `refuse`


class BadAnswer(GreendotError):
    """Answer of the app that is not valid."""


class PublishClient(Protocol):
    """Client of a tenant's app."""

    async def ask(self, body: bytes) -> bytes:
        """Return the answer to a request. Raise GreendotError if the answer is late or not valid."""
        ...

    async def close(self) -> None: ...


class PublishHook(NamedTuple):
    """Webhook of a tenant."""

    client: PublishClient
    refuses: bool  # whether messages are refused while the app does not answer; otherwise they are published


class _Calls:
    """Calls of one tenant."""

    def __init__(self) -> None:
        self.waiting = 0
        self.failures = 0  # in a row
        self.failed_at = 0.0  # monotonic seconds


class BeforePublish:
    """Questions to the apps, for one node. `hooks` are by tenant; "" is for tenants without settings of their own."""

    def __init__(self, context: NodeContext, hooks: Mapping[str, PublishHook | None], metrics: Metrics) -> None:
        self._context = context
        self._hooks = hooks
        self._metrics = metrics
        self._calls: dict[str, _Calls] = {}  # by tenant

    def asks(self, tenant: str) -> bool:
        """Return whether messages of the tenant's users need an answer."""
        return bool(self._hooks) and self._hook(tenant) is not None

    def _hook(self, tenant: str) -> PublishHook | None:
        return self._hooks.get(tenant, self._hooks.get(""))

    async def approve(self, question: PublishQuestion) -> bytes:
        """Return the body to publish.

        Raise Refused if the app refuses the message. Raise it also if the app does not answer and `refuses` is set.
        """
        tenant, hook = question.tenant, self._hook(question.tenant)
        assert hook is not None
        calls = self._calls.setdefault(tenant, _Calls())
        if calls.waiting >= MOST_WAITING:  # even if `refuses` is False: a flood must not bypass the app
            raise _unavailable()
        calls.waiting += 1
        try:
            answer = await self._answer(calls, hook, question)
        finally:
            calls.waiting -= 1
        if answer is None:
            if hook.refuses:
                raise _unavailable()
            return bytes(question.body)
        if answer.action == "refuse":
            self._metrics.before_publish_rejected_total += 1
            raise Refused(Err.REJECTED, answer.reason or "the app refused the message")
        if isinstance(answer.body, Raw) and answer.action == "change":
            self._metrics.before_publish_changed_total += 1
            return bytes(answer.body)
        return bytes(question.body)

    async def _answer(self, calls: _Calls, hook: PublishHook, question: PublishQuestion) -> PublishAnswer | None:
        """Return the answer of the app; None if there is none, or while calls pause."""
        now = self._context.timers.now
        if calls.failures >= FAILURES and now() - calls.failed_at < REST_S:
            self._metrics.before_publish_failures_total += 1
            return None
        try:
            answer = _checked(decode(await hook.client.ask(msgspec.json.encode(question)), PublishAnswer))
        except (GreendotError, msgspec.MsgspecError) as error:
            self._metrics.before_publish_failures_total += 1
            calls.failures += 1
            calls.failed_at = now()
            if calls.failures == 1:  # one log line for each outage
                log(log_events.PUBLISH_UNANSWERED, tenant=question.tenant, reason=error)
            return None
        calls.failures = 0
        return answer


def _checked(answer: PublishAnswer) -> PublishAnswer:
    """Return the answer, if its body could be sent by a client. Raise BadAnswer otherwise."""
    if answer.action != "change":
        return answer
    if not isinstance(answer.body, Raw):
        raise BadAnswer("the answer `change` has no body")
    body = bytes(answer.body)
    if len(body) > MAX_FRAME or is_too_deep(body) or has_vast_number(body):
        raise BadAnswer("the body of the answer is too large, nested too deeply, or has a number that is too large")
    return answer


def _unavailable() -> Refused:
    return Refused(
        Err.UNAVAILABLE, "the app does not answer about messages now; send the command again", retry_in_ms=RETRY_MS
    )
