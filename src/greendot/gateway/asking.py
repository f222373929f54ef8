"""Asking the app who may see whom.

For tenants whose policy is `ask`. Questions of the same moment go together, answers are kept for a while, an app that
is slow or does not answer hides everybody: nothing is shown that it did not allow lately. Each tenant has its own app,
and waits for nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Protocol

import msgspec
from msgspec import Struct

from greendot.errors import GreendotError
from greendot.gateway.batched import Batched
from greendot.gateway.shared import Shared

MOST_PAIRS = 10_000  # asked for at once; beyond it nobody is seen
MOST_ANSWERS = 200_000  # kept
FAILURES = 3  # in a row, then the app is left alone
REST_S = 5.0  # for so long
Pair = tuple[str, str]  # viewer and target
_log = logging.getLogger("greendot.asking")


class Question(Struct, frozen=True):
    """One viewer and whom they want to see."""

    viewer: str
    targets: list[str]


class Questions(Struct, frozen=True):
    """The body of a request."""

    tenant: str
    questions: list[Question]


class Shown(Struct, frozen=True):
    """One viewer and those of the targets they may see."""

    viewer: str
    visible: list[str]


class Answers(Struct, frozen=True):
    """The body of the app's answer. Who is not named is hidden."""

    answers: list[Shown]


class App(Protocol):
    """A tenant's app."""

    async def ask(self, body: bytes) -> bytes:
        """The answer to a request. GreendotError if there was none in time, or it was not a good one."""
        ...


class Asking:
    """One for each node. `keep_s` is how long an answer counts; from half of that on it is asked for again."""

    def __init__(
        self, shared: Shared, apps: Mapping[str, App], common: App | None, keep_s: Mapping[str, float]
    ) -> None:
        self._shared = shared
        self._apps = apps  # of tenants with their own
        self._common = common
        self._keep_s = keep_s  # by tenant; "" for all others
        self._asked: dict[str, Batched[Pair, bool | None]] = {}  # by tenant
        self._answers: dict[tuple[str, str, str], tuple[bool, float]] = {}  # and when it was asked for
        self._void: dict[tuple[str, str], float] = {}  # users something changed about, and when
        self._failed: dict[str, tuple[int, float]] = {}  # tenants: how often in a row, and when it was last
        self.failures = 0

    def said(self, tenant: str, viewer: str, target: str) -> bool:
        """Whether the app said so, and lately enough."""
        return self._answer(tenant, viewer, target, self._keep(tenant)) is True

    async def ask(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        """Have answers for these. Returns also if there are none to be had."""
        fresh_s = self._keep(tenant) / 2
        pairs = [
            (viewer, target)
            for viewer, target in product(viewers, targets)
            if viewer != target and self._answer(tenant, viewer, target, fresh_s) is None
        ][:MOST_PAIRS]
        if pairs:
            batched = self._asked.get(tenant)
            if batched is None:
                batched = Batched(self._shared, lambda some: self._read(tenant, some), None)
                self._asked[tenant] = batched
            await asyncio.gather(*(batched.get(pair) for pair in pairs))

    def forget(self, tenant: str, user: str) -> None:
        """Answers about this user may be wrong, also those on their way."""
        if self._answers or self._asked:
            self._void[tenant, user] = self._shared.timers.now()

    def prune(self) -> None:
        now = self._shared.timers.now()
        oldest = {tenant: now - self._keep(tenant) for tenant in self._asked}
        self._answers = {key: answer for key, answer in self._answers.items() if answer[1] >= oldest[key[0]]}
        longest = max([self._keep(tenant) for tenant in self._asked], default=0.0)
        self._void = {key: at for key, at in self._void.items() if at >= now - longest}

    def _keep(self, tenant: str) -> float:
        return self._keep_s.get(tenant, self._keep_s[""])

    def _answer(self, tenant: str, viewer: str, target: str, within_s: float) -> bool | None:
        answer, asked_at = self._answers.get((tenant, viewer, target), (None, 0.0))
        if answer is None or self._shared.timers.now() - asked_at > within_s:
            return None
        void = self._void
        if void and max(void.get((tenant, viewer), -1.0), void.get((tenant, target), -1.0)) >= asked_at:
            return None
        return answer

    # --- the app ---

    async def _read(self, tenant: str, pairs: Sequence[Pair]) -> dict[Pair, bool]:
        app, now = self._apps.get(tenant, self._common), self._shared.timers.now()
        times, last = self._failed.get(tenant, (0, 0.0))
        if app is None or (times >= FAILURES and now - last < REST_S):
            return {}
        asked: dict[str, list[str]] = {}
        for viewer, target in pairs:
            asked.setdefault(viewer, []).append(target)
        questions = Questions(tenant, [Question(viewer, targets) for viewer, targets in asked.items()])
        try:
            answers = msgspec.json.decode(await app.ask(msgspec.json.encode(questions)), type=Answers)
        except (GreendotError, msgspec.MsgspecError) as error:
            self.failures += 1
            self._failed[tenant] = times + 1, self._shared.timers.now()
            _log.warning("the app of tenant %s did not say who may see whom: %s", tenant, error)
            return {}
        self._failed.pop(tenant, None)
        visible = {(shown.viewer, target) for shown in answers.answers for target in shown.visible}
        found = {pair: pair in visible for pair in pairs}
        if len(self._answers) + len(found) > MOST_ANSWERS:
            self._answers.clear()  # they are asked for again
        self._answers.update({(tenant, *pair): (said, now) for pair, said in found.items()})
        return found
