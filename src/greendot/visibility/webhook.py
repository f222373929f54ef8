"""Visibility webhook: requests to the app about who may see whom.

The webhook is for tenants with the policy `ask`. Questions of the same moment share a request, and answers are kept for
a while. An app that is slow or does not answer hides all users: no user is shown whom the app did not allow recently.
Each tenant has its own app, and does not wait for other apps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from greendot.errors import GreendotError
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.protocol.decoding import decode
from greendot.telemetry import log_events
from greendot.telemetry.log import log

MOST_PAIRS = 10_000  # pairs in one call of `ask`; further targets stay hidden
MOST_ANSWERS = 200_000  # answers kept
MOST_NAMES = 32 * 1024  # bytes of ids in one request, so that the answer is not longer than the read limit
FAILURES = 3  # failures in a row after which calls pause
REST_S = 5.0  # seconds of the pause
Pair = tuple[str, str]  # viewer and target


class VisibilityQuestion(Struct, frozen=True):
    """Viewer and the users they want to see."""

    viewer: str
    targets: list[str]


class Questions(Struct, frozen=True):
    """Body of a request."""

    tenant: str
    questions: list[VisibilityQuestion]


class VisibleTargets(Struct, frozen=True):
    """Viewer and the targets they may see."""

    viewer: str
    visible: list[str]


class Answers(Struct, frozen=True):
    """Body of the app's answer. Targets that are not named are hidden."""

    answers: list[VisibleTargets]


class VisibilityAnswer(NamedTuple):
    """Answer about one pair."""

    yes: bool
    at: float  # monotonic seconds of the request
    changes: int  # number of changes at the request: a later change voids the answer


class VisibilityClient(Protocol):
    """Client of a tenant's app."""

    async def ask(self, body: bytes) -> bytes:
        """Return the answer to a request. Raise GreendotError if the answer is late or not valid."""
        ...


class VisibilityWebhook:
    """Answers of apps, for one node. `keep_s` is the lifetime of an answer; after half of it, `ask` renews it."""

    def __init__(
        self, context: NodeContext, keep_s: Mapping[str, float], clients: Mapping[str, VisibilityClient]
    ) -> None:
        self._context = context
        self._keep_s = keep_s  # by tenant; "" for all other tenants
        self._clients = clients  # by tenant, likewise; without a client no user is visible
        self.listeners: list[Callable[[str], None]] = []  # called with a tenant whose app did not answer
        self._asked: dict[str, BatchedReads[Pair, bool | None]] = {}  # by tenant
        self._answers: dict[tuple[str, str, str], VisibilityAnswer] = {}
        self._changes = 0  # number of changes
        self._changed: dict[tuple[str, str], tuple[int, float]] = {}  # by user: number and time of the last change
        self._failed: dict[str, tuple[int, float]] = {}  # by tenant: failures in a row, and the time of the last
        self.failures = 0

    def answer(self, tenant: str, viewer: str, target: str) -> bool:
        """Return whether an answer that is still valid lets the viewer see the target."""
        return self._answer(tenant, viewer, target, self._keep(tenant)) is True

    async def ask(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        """Request the missing answers about these pairs. Return normally also if the app does not answer."""
        fresh_s = self._keep(tenant) / 2
        unknown = (
            (viewer, target)
            for viewer, target in product(viewers, targets)
            if viewer != target and self._answer(tenant, viewer, target, fresh_s) is None
        )
        if pairs := [*islice(unknown, MOST_PAIRS)]:
            batched = self._asked.get(tenant)
            if batched is None:
                batched = BatchedReads(self._context, lambda some: self._read(tenant, some), None)
                self._asked[tenant] = batched
            for answer in [batched.ask(pair) for pair in pairs]:  # a task for each pair would cost more than the rest
                await asyncio.shield(answer)

    def forget(self, tenant: str, user: str) -> None:
        """Void the answers about a user, including answers to requests under way."""
        if self._asked:
            self._changes += 1
            self._changed[tenant, user] = self._changes, self._context.timers.now()

    async def prune(self) -> None:
        """Drop answers that are no longer valid, and changes before all valid answers, in slices."""
        now, slices = self._context.timers.now(), self._context.slices
        oldest = {tenant: now - self._keep(tenant) for tenant in self._asked}
        async for answered in slices.cut([*self._answers]):
            for key in answered:
                if key in self._answers and self._answers[key].at < oldest[key[0]]:
                    del self._answers[key]
        longest = max([self._keep(tenant) for tenant in self._asked], default=0.0)
        async for changed in slices.cut([*self._changed]):
            for user in changed:
                if user in self._changed and self._changed[user][1] < now - longest:
                    del self._changed[user]

    def _keep(self, tenant: str) -> float:
        return self._keep_s.get(tenant, self._keep_s[""])

    def _answer(self, tenant: str, viewer: str, target: str, within_s: float) -> bool | None:
        said = self._answers.get((tenant, viewer, target))
        if said is None or self._context.timers.now() - said.at > within_s:
            return None
        changed = self._changed
        if changed and any(changed.get((tenant, user), (0, 0))[0] > said.changes for user in (viewer, target)):
            return None
        return said.yes

    # --- the app ---

    async def _read(self, tenant: str, pairs: Sequence[Pair]) -> dict[Pair, bool]:
        times, last = self._failed.get(tenant, (0, 0.0))
        if times >= FAILURES and self._context.timers.now() - last < REST_S:
            return {}
        found: dict[Pair, bool] = {}
        for answers in await asyncio.gather(*(self._call(tenant, some) for some in _requests(pairs))):
            found |= answers
        return found

    async def _call(self, tenant: str, pairs: Sequence[Pair]) -> dict[Pair, bool]:
        app, now, changes = (
            self._clients.get(tenant) or self._clients.get(""),
            self._context.timers.now(),
            self._changes,
        )
        if app is None:
            return {}
        asked: dict[str, list[str]] = {}
        for viewer, target in pairs:
            asked.setdefault(viewer, []).append(target)
        questions = Questions(tenant, [VisibilityQuestion(viewer, targets) for viewer, targets in asked.items()])
        try:
            answers = decode(await app.ask(msgspec.json.encode(questions)), Answers)
        except (GreendotError, msgspec.MsgspecError) as error:
            self._note_failure(tenant, error)
            return {}
        self._failed.pop(tenant, None)
        visible = {(shown.viewer, target) for shown in answers.answers for target in shown.visible}
        found = {pair: pair in visible for pair in pairs}
        for key in [*islice(self._answers, max(0, len(self._answers) + len(found) - MOST_ANSWERS))]:
            del self._answers[key]  # the oldest; answers are requested again when needed
        self._answers.update({(tenant, *pair): VisibilityAnswer(yes, now, changes) for pair, yes in found.items()})
        return found

    def _note_failure(self, tenant: str, error: Exception) -> None:
        times, _ = self._failed.get(tenant, (0, 0.0))
        self.failures += 1
        self._failed[tenant] = times + 1, self._context.timers.now()
        if times == 0:  # one log line for each outage
            log(log_events.VISIBILITY_UNANSWERED, tenant=tenant, reason=error)
        for listener in self.listeners:
            listener(tenant)

    @property
    def shortest_s(self) -> float:
        """Return the shortest lifetime of answers, in seconds."""
        return min(self._keep_s.values())


def _requests(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in as few requests as `MOST_NAMES` allows."""
    some, size = list[Pair](), 0
    for pair in pairs:
        if some and size > MOST_NAMES:
            yield some
            some, size = [], 0
        some.append(pair)
        size += len(pair[0]) + len(pair[1])
    if some:
        yield some
