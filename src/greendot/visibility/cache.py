"""Cache of the facts that decide who may see whom.

The cache holds facts about every viewer and target on this node. Facts are read on first use, read again when a node
publishes a change, and compared periodically in case a message was lost (see `VisibilityUpdates`). A user without facts
is hidden. In a tenant with the policy `tenant` where no user hides anything, nothing has to be read.
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
FEW, AT_ONCE = 20, 1_000  # users whose read is batched with other reads; users in one read
_NOBODY = frozenset[str]()


class DecisionMark(NamedTuple):
    """Position in the sequence of decisions of `VisibilityCache`."""

    number: int
    matters: bool  # whether the tenant had anything to decide


class VisibilityConsumer(Protocol):
    """Service that shows users to other users: watches, or rooms."""

    def in_use(self, tenant: str) -> set[str]:
        """Return the tenant's users who are shown by this service."""
        ...

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Decide again whom these users see and who sees them (None: all users). Deliver the differences."""
        ...


class VisibilityCache:
    """Facts and decisions of one node. `now_ms` is the clock by which contacts are recent."""

    def __init__(
        self,
        store: PrivacyStore,
        context: NodeContext,
        policies: Mapping[str, VisibilityPolicy],  # by tenant; "" for all other tenants
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
        self._hiding: dict[str, bool] = {}  # by tenant: whether any user hides anything
        self._changes = 0  # number of changes received
        self._changed: dict[Key, int] = {}  # by user, number of the last change: facts read before it are void
        self._doubted: set[Key] = set()  # users whose facts are uncertain
        self._decisions = 0  # number of times that decisions may have changed
        self._decided: dict[Key, int] = {}  # by user, number of the last time
        self._long_ago = 0  # number of changes at the last `prune`
        self._decided_long_ago = 0  # number of decisions at the last `prune`
        self._most = MOST  # users in the cache above which unused ones are dropped
        self._facts: BatchedReads[Key, VisibilityFacts] = BatchedReads(context, self._read, PLAIN)
        self._tenants: BatchedReads[str, bool] = BatchedReads(context, self._read_tenants, False)
        self.consumers: list[VisibilityConsumer] = []  # each consumer adds itself
        self._registry = context.registry

    def policy(self, tenant: str) -> VisibilityPolicy:
        return self._policies.get(tenant, self._common_policy)

    # --- decisions, made at once from cached facts ---

    def see(self, tenant: str, viewer: str, target: str, *, in_room: bool = False) -> Sight:
        """Return what the viewer sees of the target; hidden if facts are missing. `in_room`: both are in one room."""
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
        allowed = rule.policy == "ask" and self._visibility_webhook.answer(tenant, viewer, target)
        rule = rule.in_room if in_room else rule
        return may_see(rule, Person(viewer, looking), Person(target, seen), self._now_ms(), allowed_by_app=allowed)

    def is_discreet(self, tenant: str, user: str) -> bool:
        """Return whether others do not see when the user was last seen."""
        if not self.matters(tenant):
            return (tenant, user) in self._doubted
        facts = self._known.get((tenant, user))
        return facts is None or facts.privacy.last_seen == "hidden"

    def matters(self, tenant: str) -> bool:
        """Return whether there is anything to decide in this tenant; True while unknown."""
        return self._hiding.get(tenant, True) or self.policy(tenant).policy != "tenant"

    def knows(self, tenant: str, viewer: str, targets: Iterable[str]) -> bool:
        """Return whether the facts for decisions about these users are cached."""
        if not self.matters(tenant):
            return True
        users = (viewer, *targets) if self.policy(tenant).is_mutual else targets
        return all((tenant, user) in self._known for user in users)

    def is_ready(self, tenant: str, user: str) -> bool:
        """Return whether the cache can decide at once who sees the user."""
        return not self.matters(tenant) or ((tenant, user) in self._known and self.policy(tenant).policy != "ask")

    def decided(self, tenant: str) -> DecisionMark:
        """Return the mark of the latest decision, for `decided_since`."""
        return DecisionMark(self._decisions, self.matters(tenant))

    def decided_since(self, tenant: str, viewer: str, targets: Sequence[str], then: DecisionMark) -> list[int]:
        """Return the positions of the targets about whom the decision may have changed since `then`."""
        now = self.decided(tenant)
        if now == then:
            return []
        known = self._decided
        if now.matters != then.matters or known.get((tenant, viewer), 0) > then.number:
            return [*range(len(targets))]
        return [at for at, target in enumerate(targets) if known.get((tenant, target), 0) > then.number]

    # --- decisions for a room ---

    def view_exceptions(self, tenant: str) -> VisibilityExceptions:
        """Return empty exceptions for a room of this tenant."""
        return VisibilityExceptions(is_open=self.policy(tenant).is_open)

    def exceptions(self, tenant: str, target: str, viewers: Callable[[], Iterable[str]]) -> Collection[str]:
        """Return the users who are exceptions for a target in a room.

        In an open tenant exceptions do not see the target; in other tenants only exceptions see the target.
        """
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
        """Return the users from whom the user hides, as far as cached."""
        if not self.matters(tenant):
            return _NOBODY
        return self._known.get((tenant, user), PLAIN).privacy.hide_from

    def only_hidden_from(self, tenant: str, user: str) -> frozenset[str] | None:
        """Return the only users who do not see the user; None if a decision needs more facts."""
        if self.policy(tenant).policy != "tenant" or (tenant, user) in self._doubted:
            return None
        return self.hides_from(tenant, user)

    # --- facts ---

    async def know(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        """Read the facts about these users, and the app's answers where the policy is `ask`.

        Raise StoreUnavailable if the facts cannot be read.
        """
        await self.learn(tenant, viewers, targets)
        if self.policy(tenant).policy == "ask":
            await self._visibility_webhook.ask(tenant, viewers, targets)

    async def know_many(self, tenant: str, viewer: str, targets: Sequence[str]) -> None:
        """Call `know` for any number of targets, in slices."""
        async for some in self._slices.cut(targets, AT_ONCE):
            await self.know(tenant, [viewer], some)

    async def visible(self, tenant: str, viewer: str, targets: Sequence[str]) -> list[str]:
        """Return the users in a room whom the viewer sees, decided in slices by the facts known at the end."""
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
        """Read the facts about these users like `know`, but never call the visibility webhook."""
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
        """Read facts: of a few users in a batch with other reads, of many users in a read of their own."""
        if len(keys) <= FEW:
            return dict(zip(keys, await asyncio.gather(*(self._facts.get(key) for key in keys)), strict=True))
        found = await self._read(keys)
        return {key: found.get(key, PLAIN) for key in keys}

    async def changed(self, tenant: str, users: Collection[str]) -> None:
        """Read the facts of changed users again. Until then decisions stay as before.

        Raise StoreUnavailable if the facts cannot be read.
        """
        self._note(tenant, users)
        if not self._hiding.get(tenant, True):
            found = await self._store.privacies([(tenant, user) for user in users])
            if any(not privacy.is_plain for privacy in found.values()):
                await self._begin(tenant)
        if self.matters(tenant):
            await self._reload(tenant, users)
        self._doubted.difference_update((tenant, user) for user in users)

    async def _begin(self, tenant: str) -> None:
        """Read the facts of all users in use, because a first user of the tenant hides something."""
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
        """Hide users from all others until their changed facts can be read."""
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
        """Read in which tenants a user hides, in case a message was lost; return the tenants that matter, or did.

        Facts about tenants that are not in `tenants` are dropped.
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
        """Read the facts of a tenant's users in use again, in case a change was missed; drop all other facts."""
        used = set[str]()
        if self.matters(tenant):
            await self._reload(tenant, self._in_use(tenant))
            used = self._in_use(tenant)
        self._known = {key: facts for key, facts in self._known.items() if key[0] != tenant or key[1] in used}

    def prune(self) -> None:
        """Drop the numbers of changes that no read under way can have missed."""
        self._changed = {key: number for key, number in self._changed.items() if number > self._long_ago}
        self._long_ago = self._changes
        self._decided = {key: number for key, number in self._decided.items() if number > self._decided_long_ago}
        self._decided_long_ago = self._decisions
        self._most = max(MOST, 2 * len(self._known))
        self._visibility_webhook.prune()

    def _in_use(self, tenant: str) -> set[str]:
        """Return the users of a tenant who see other users, or are seen, on this node."""
        used = set[str]().union(*(consumer.in_use(tenant) for consumer in self.consumers))
        if self.policy(tenant).is_mutual:
            used.update(self._registry.users_of(tenant))
        return used

    def _make_room(self, tenant: str) -> None:
        """Drop the tenant's unused facts if the cache is full."""
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
