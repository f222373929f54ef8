"""Cached facts about who may see whom.

The cache holds the facts that decisions need, for every viewer and target on this node: read on first use, read
again when a node publishes a change, and compared now and then in case a message was lost (see `VisibilityUpdates`).
An unknown user is hidden. In a tenant where nobody hides anything and the policy is open, nothing has to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.store.visibility import PrivacyStore
from greendot.visibility.model import (
    PLAIN,
    Person,
    Privacy,
    Sight,
    VisibilityExceptions,
    VisibilityFacts,
    VisibilityPolicy,
    may_see,
)
from greendot.visibility.webhook import VisibilityWebhook

MOST = 50_000
FEW, AT_ONCE = 20, 1_000  # users in one read
_NOBODY = frozenset[str]()


class DecisionMark(NamedTuple):
    """When something was decided about somebody, as `VisibilityCache` counts it."""

    number: int
    matters: bool  # whether there was anything to decide in the tenant


class VisibilityConsumer(Protocol):
    """Where people are looked at: what is watched, who is in rooms."""

    def in_use(self, tenant: str) -> set[str]:
        """The users who are looked at."""
        ...

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again what these see, and who sees them (None: everybody), and tell what is different."""
        ...


class VisibilityCache:
    """One for each node. `now_ms` is the time contacts are measured by."""

    def __init__(
        self,
        store: PrivacyStore,
        context: NodeContext,
        policies: Mapping[str, VisibilityPolicy],  # by tenant; "" for all others
        visibility_webhook: VisibilityWebhook,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._policies = policies
        self._common_policy = policies[""]
        self._visibility_webhook = visibility_webhook
        self._slices = context.slices
        self._now_ms = now_ms
        self._known: dict[Key, VisibilityFacts] = {}
        self._hiding: dict[str, bool] = {}  # tenants: whether anybody there hides anything
        self._changes = 0  # that were heard of
        self._changed: dict[Key, int] = {}  # by user, the last of them: what was read before is void
        self._doubted: set[Key] = set()  # of whom nothing is known for sure
        self._decisions = 0  # how often it was decided anew about somebody
        self._decided: dict[Key, int] = {}  # by user, the last of them
        self._long_ago = 0  # the number of changes a while ago
        self._decided_long_ago = 0  # the number of decisions then
        self._most = MOST  # users to be known before those not in use are forgotten
        self._facts: BatchedReads[Key, VisibilityFacts] = BatchedReads(context, self._read, PLAIN)
        self._tenants: BatchedReads[str, bool] = BatchedReads(context, self._read_tenants, False)
        self.consumers: list[VisibilityConsumer] = []  # each adds itself
        self._registry = context.registry

    def policy(self, tenant: str) -> VisibilityPolicy:
        return self._policies.get(tenant, self._common_policy)

    # --- deciding: at once, from what is known ---

    def see(self, tenant: str, viewer: str, target: str, *, in_room: bool = False) -> Sight:
        """What the viewer is shown of the target; hidden if that is not known. `in_room`: both are in one."""
        if viewer == target:
            return "full"
        if self._doubted and (tenant, target) in self._doubted:
            return "hidden"
        if not self.matters(tenant):
            return "full"
        known, rule = self._known, self.policy(tenant)
        seen = known.get((tenant, target))
        looking = known.get((tenant, viewer)) if rule.is_mutual else PLAIN
        if looking is None or seen is None:
            return "hidden"
        said = rule.policy == "ask" and self._visibility_webhook.answer(tenant, viewer, target)
        rule = rule.in_room if in_room else rule
        return may_see(rule, Person(viewer, looking), Person(target, seen), self._now_ms(), said=said)

    def is_discreet(self, tenant: str, user: str) -> bool:
        """Whether others are not shown when the user was last seen."""
        if not self.matters(tenant):
            return (tenant, user) in self._doubted
        facts = self._known.get((tenant, user))
        return facts is None or facts.privacy.last_seen == "hidden"

    def matters(self, tenant: str) -> bool:
        """Whether there is anything to decide in this tenant."""
        return self._hiding.get(tenant, True) or self.policy(tenant).policy != "tenant"

    def knows(self, tenant: str, viewer: str, targets: Iterable[str]) -> bool:
        """Whether what decisions about these are made of is known."""
        if not self.matters(tenant):
            return True
        users = (viewer, *targets) if self.policy(tenant).is_mutual else targets
        return all((tenant, user) in self._known for user in users)

    def is_ready(self, tenant: str, user: str) -> bool:
        """Whether it can be decided at once who sees the user."""
        return not self.matters(tenant) or ((tenant, user) in self._known and self.policy(tenant).policy != "ask")

    def decided(self, tenant: str) -> DecisionMark:
        """Return the state of what decisions are made of, for `decided_since`."""
        return DecisionMark(self._decisions, self.matters(tenant))

    def decided_since(self, tenant: str, viewer: str, targets: Sequence[str], then: DecisionMark) -> list[int]:
        """Return the positions of the targets about whom it may have been decided otherwise since `then`."""
        now = self.decided(tenant)
        if now == then:
            return []
        known = self._decided
        if now.matters != then.matters or known.get((tenant, viewer), 0) > then.number:
            return [*range(len(targets))]
        return [at for at, target in enumerate(targets) if known.get((tenant, target), 0) > then.number]

    # --- deciding for a room ---

    def view_exceptions(self, tenant: str) -> VisibilityExceptions:
        """An empty one for a room of this tenant."""
        return VisibilityExceptions(is_open=self.policy(tenant).is_open)

    def exceptions(self, tenant: str, target: str, viewers: Callable[[], Iterable[str]]) -> Collection[str]:
        """Of those in a room, for its exceptions: who does not see the target in an open tenant, elsewhere who does."""
        is_doubted = (tenant, target) in self._doubted
        if not self.matters(tenant) and not is_doubted:
            return ()
        facts = self._known.get((tenant, target))
        if facts is None or is_doubted:
            return [*viewers()] if self.policy(tenant).is_open else ()
        if self.policy(tenant).is_open:
            return facts.privacy.hide_from
        return [viewer for viewer in viewers() if self.see(tenant, viewer, target, in_room=True) != "hidden"]

    def hides_from(self, tenant: str, user: str) -> frozenset[str]:
        """Whom the user hides from, as far as it is known."""
        if not self.matters(tenant):
            return _NOBODY
        return self._known.get((tenant, user), PLAIN).privacy.hide_from

    def only_hidden_from(self, tenant: str, user: str) -> frozenset[str] | None:
        """The only ones who do not see the user; None where more is to be looked at than that."""
        if self.policy(tenant).policy != "tenant" or (tenant, user) in self._doubted:
            return None
        return self.hides_from(tenant, user)

    # --- learning ---

    async def know(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        """Make sure that decisions can be made about these. StoreUnavailable if they cannot."""
        await self.learn(tenant, viewers, targets)
        if self.policy(tenant).policy == "ask":
            await self._visibility_webhook.ask(tenant, viewers, targets)

    async def know_many(self, tenant: str, viewer: str, targets: Sequence[str]) -> None:
        """Like `know`, for any number of targets: as many as are read together, in slices."""
        async for some in self._slices.cut(targets, AT_ONCE):
            await self.know(tenant, [viewer], some)

    async def visible(self, tenant: str, viewer: str, targets: Sequence[str]) -> list[str]:
        """Return those of the users in a room whom the viewer sees: decided in slices, by what is known at the end."""
        await self.know_many(tenant, viewer, targets)
        decided, seen = self.decided(tenant), [False] * len(targets)
        again = [*range(len(targets))]
        while again:
            async for numbers in self._slices.cut(again):
                await self.learn(tenant, [viewer], [targets[number] for number in numbers])
                for number in numbers:
                    seen[number] = self.see(tenant, viewer, targets[number], in_room=True) != "hidden"
            decided, then = self.decided(tenant), decided
            again = self.decided_since(tenant, viewer, targets, then)
        return [target for target, is_seen in zip(targets, seen, strict=True) if is_seen]

    async def learn(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        """The same without asking the app: what it has not said it does not say now."""
        if tenant not in self._hiding:
            began = self._changes
            hiding = await self._tenants.get(tenant)
            if tenant not in self._hiding and began == self._changes:
                self._hiding[tenant] = hiding
        if not self.matters(tenant):
            return
        self._make_room(tenant)
        users = {*viewers, *targets} if self.policy(tenant).is_mutual else targets
        while missing := [user for user in users if (tenant, user) not in self._known]:
            await self._learn([(tenant, user) for user in missing])

    async def _learn(self, keys: Sequence[Key]) -> None:
        began = self._changes
        for at in range(0, len(keys), AT_ONCE):
            found = await self._fetch(keys[at : at + AT_ONCE])
            fresh = {key: of for key, of in found.items() if self._changed.get(key, 0) <= began}
            self._note_decisions([key for key, of in fresh.items() if self._known.get(key, of) != of])
            self._known.update(fresh)

    async def _fetch(self, keys: Sequence[Key]) -> dict[Key, VisibilityFacts]:
        """Together with what others ask for at the moment, unless they are many by themselves."""
        if len(keys) <= FEW:
            return dict(zip(keys, await asyncio.gather(*(self._facts.get(key) for key in keys)), strict=True))
        found = await self._read(keys)
        return {key: found.get(key, PLAIN) for key in keys}

    async def changed(self, tenant: str, users: Collection[str]) -> None:
        """Read these again. Until that is done decisions are as before. StoreUnavailable: they are not read."""
        self._note(tenant, users)
        if not self._hiding.get(tenant, True):
            found = await self._store.privacies([(tenant, user) for user in users])
            if any(not privacy.is_plain for privacy in found.values()):
                await self._begin(tenant)
        if self.matters(tenant):
            await self._reload(tenant, users)
        self._doubted.difference_update((tenant, user) for user in users)

    async def _begin(self, tenant: str) -> None:
        """The first in this tenant who hides: from now on it must be known of everybody here whether they do."""
        while missing := [user for user in self._in_use(tenant) if (tenant, user) not in self._known]:
            await self._learn([(tenant, user) for user in missing])
        self._hiding[tenant] = True

    async def _reload(self, tenant: str, users: Collection[str]) -> None:
        keys = [(tenant, user) for user in users if (tenant, user) in self._known]
        while keys:
            began = self._changes
            await self._learn(keys)
            keys = [key for key in keys if self._changed.get(key, 0) > began]

    def doubt(self, tenant: str, users: Collection[str]) -> None:
        """They have changed and cannot be read: nobody sees them until they are."""
        self._doubted.update((tenant, user) for user in users)
        self._note_decisions([(tenant, user) for user in users])

    def _note_decisions(self, keys: Collection[Key]) -> None:
        if keys:
            self._decisions += 1
            self._decided.update(dict.fromkeys(keys, self._decisions))

    def _note(self, tenant: str, users: Collection[str]) -> None:
        self._changes += 1
        self._changed.update(dict.fromkeys(((tenant, user) for user in users), self._changes))
        self._note_decisions([(tenant, user) for user in users])
        for user in users:
            self._visibility_webhook.forget(tenant, user)

    async def tenants_that_matter(self, tenants: Collection[str]) -> list[str]:
        """Read where anybody hides, in case a message was lost. Return the tenants that matter, or did.

        Facts about tenants that are not named are dropped.
        """
        self._hiding = {tenant: hides for tenant, hides in self._hiding.items() if tenant in tenants}
        self._known = {key: facts for key, facts in self._known.items() if key[0] in self._hiding}
        mattered = [tenant for tenant in self._hiding if self.matters(tenant)]
        for at in range(0, len(names := [*self._hiding]), AT_ONCE):
            changes, some = self._changes, names[at : at + AT_ONCE]
            hiding = await self._store.hiding(some)
            if changes == self._changes:
                self._hiding.update({tenant: False for tenant in some if tenant not in hiding})
            for tenant in hiding:
                if not self._hiding.get(tenant, True):
                    await self._begin(tenant)
        return [*{*mattered, *(tenant for tenant in self._hiding if self.matters(tenant))}]

    async def refresh(self, tenant: str) -> None:
        """Read everything of a tenant that is in use again, in case a change was not heard of; forget the rest."""
        used = set[str]()
        if self.matters(tenant):
            await self._reload(tenant, self._in_use(tenant))
            used = self._in_use(tenant)
        self._known = {key: facts for key, facts in self._known.items() if key[0] != tenant or key[1] in used}

    def prune(self) -> None:
        """Forget the changes that no read under way can have missed."""
        self._changed = {key: number for key, number in self._changed.items() if number > self._long_ago}
        self._long_ago = self._changes
        self._decided = {key: number for key, number in self._decided.items() if number > self._decided_long_ago}
        self._decided_long_ago = self._decisions
        self._most = max(MOST, 2 * len(self._known))
        self._visibility_webhook.prune()

    def _in_use(self, tenant: str) -> set[str]:
        """Return the users of a tenant who look, or are looked at, here."""
        used = set[str]().union(*(consumer.in_use(tenant) for consumer in self.consumers))
        if self.policy(tenant).is_mutual:
            used.update(self._registry.users_of(tenant))
        return used

    def _make_room(self, tenant: str) -> None:
        """Of those who were asked about once, and are not looked at, no more is kept than this."""
        if len(self._known) > self._most:
            used = self._in_use(tenant)
            self._known = {key: facts for key, facts in self._known.items() if key[0] != tenant or key[1] in used}
            self._most = max(MOST, 2 * len(self._known))

    # --- reading ---

    async def _read(self, keys: Sequence[Key]) -> dict[Key, VisibilityFacts]:
        policies = {tenant: self.policy(tenant).policy for tenant, _ in keys}
        social = [key for key in keys if policies[key[0]] in ("contacts", "recent_contacts")]
        roomy = [key for key in keys if policies[key[0]] == "shared_rooms"]
        privacies = await self._store.privacies(keys)
        contacts = await self._store.contacts(social) if social else {}
        rooms = await self._store.memberships(roomy) if roomy else {}
        plain, nowhere = Privacy(), frozenset[str]()
        return {
            key: VisibilityFacts(privacies.get(key, plain), rooms.get(key, nowhere), contacts.get(key, {}))
            for key in {*privacies, *contacts, *rooms}
        }

    async def _read_tenants(self, tenants: Sequence[str]) -> dict[str, bool]:
        hiding = await self._store.hiding(tenants)
        return {tenant: tenant in hiding for tenant in tenants}
