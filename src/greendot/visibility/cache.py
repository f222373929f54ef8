"""Cache of the facts that decide who may see whom.

Where only privacy settings decide, the cache lists the users of a tenant who hide something, if they are few. All other
users hide nothing, and nothing has to be read for them. In other tenants the cache holds facts about every viewer and
target on this node, read on first use. A user without facts is hidden.

Facts are read again when a node publishes a change. In case a message was lost, the changes since the last known
revision are read periodically (see `VisibilityUpdates`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.bucket_model import BucketDict
from greendot.node.context import NodeContext
from greendot.node.time_slices import STEP
from greendot.store.visibility import LATEST, FactKind, PrivacyStore, Revision
from greendot.visibility.facts_model import FactTable
from greendot.visibility.freshness import VisibilityFreshness
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
MOST_LISTED = 20_000  # users who hide something, and the users they hide from, in one tenant; more are not listed
LIST_PAGE = 200  # listed users in one read
TENANTS_AT_ONCE = 100  # tenants whose changes are read together
_NOBODY = frozenset[str]()
_LISTED_POLICIES = ("tenant", "ask")  # policies that need only privacy settings as facts


class DecisionMark(NamedTuple):
    """Position in the sequence of decisions of `VisibilityCache`."""

    number: int
    matters: bool  # whether the tenant had anything to decide


class _Start(NamedTuple):
    """State of a tenant, read at its first use."""

    revisions: dict[FactKind, Revision]  # older than the list
    listed: dict[str, VisibilityFacts] | None  # all users who hide something; None: not listed


class VisibilityConsumer(Protocol):
    """Service that shows users to other users: watches, or rooms."""

    def in_use(self, tenant: str) -> AsyncIterator[Sequence[str]]:
        """Yield the tenant's users who are shown by this service, some at a time, in slices. A user may come twice."""
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
        freshness: VisibilityFreshness,
    ) -> None:
        self.freshness = freshness
        self._store = store
        self._policies = policies
        self._common_policy = policies[""]
        self._visibility_webhook = visibility_webhook
        self._slices = context.slices
        self._now_ms = now_ms
        self._facts = FactTable()
        self._revisions: dict[str, dict[FactKind, Revision]] = {}  # by tenant in use: the facts are not older
        self._loading = Counter[str]()  # by tenant: reads of its state under way
        self._unlisting: set[str] = set()  # listed tenants that are about to end their listing
        self._changes = 0  # number of changes received
        self._changed: dict[Key, int] = {}  # by user, number of the last change: facts read before it are void
        self._doubted: set[Key] = set()  # users whose facts are uncertain
        self._decisions = 0  # number of times that decisions may have changed
        self._decided: dict[Key, int] = {}  # by user, number of the last time
        self._long_ago = 0  # number of changes at the last `prune`
        self._decided_long_ago = 0  # number of decisions at the last `prune`
        self._most = MOST  # users in the cache above which unused ones are dropped
        self._unreviewed: dict[str, set[str]] = {}  # by tenant: users with different facts since the last refresh
        self._turn = asyncio.Lock()  # held during a refresh
        self._touched: set[Key] | None = None  # users needed since the drop of unused facts under way began
        self._reads: BatchedReads[Key, VisibilityFacts] = BatchedReads(context, self._read, PLAIN)
        self._tenants: BatchedReads[str, _Start | None] = BatchedReads(context, self._read_tenants, None)
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
        facts, rule = self._facts, self.policy(tenant)
        seen = facts.get(tenant, target)
        looking = facts.get(tenant, viewer) if rule.is_mutual else PLAIN
        if looking is None or seen is None:
            return "hidden"
        allowed = rule.policy == "ask" and self._visibility_webhook.answer(tenant, viewer, target)
        rule = rule.in_room if in_room else rule
        return may_see(rule, Person(viewer, looking), Person(target, seen), self._now_ms(), allowed_by_app=allowed)

    def is_discreet(self, tenant: str, user: str) -> bool:
        """Return whether others do not see when the user was last seen."""
        if (tenant, user) in self._doubted:
            return True
        facts = self._facts.get(tenant, user)
        return facts is None or facts.privacy.last_seen == "hidden"

    def matters(self, tenant: str) -> bool:
        """Return whether there is anything to decide in this tenant; True while unknown."""
        facts = self._facts
        return not facts.is_listed(tenant) or facts.has_any(tenant) or self.policy(tenant).policy != "tenant"

    def reads_each(self, tenant: str) -> bool:
        """Return whether facts are read for each user; True while unknown. If not, `learn` costs nothing."""
        return not self._facts.is_listed(tenant) or tenant in self._unlisting

    def is_used(self, tenant: str) -> bool:
        """Return whether this node has decided about users of the tenant, or is about to."""
        return tenant in self._revisions or tenant in self._loading

    def is_certain(self, tenant: str) -> bool:
        """Return whether the facts of all users of the tenant are known."""
        return not self._doubted and not self.reads_each(tenant)

    def needs_reads(self, tenant: str) -> bool:
        """Return whether `know` may read facts, or call the visibility webhook."""
        return self.reads_each(tenant) or self.policy(tenant).policy == "ask"

    def knows(self, tenant: str, viewer: str, targets: Iterable[str]) -> bool:
        """Return whether the facts for decisions about these users are cached."""
        if not self.freshness.is_fresh():
            return False
        if not self.reads_each(tenant):
            return True
        users = (viewer, *targets) if self.policy(tenant).is_mutual else targets
        return all(self._has(tenant, user) for user in users)

    def is_ready(self, tenant: str, user: str) -> bool:
        """Return whether the cache can decide at once who sees the user."""
        if self.policy(tenant).policy == "ask" or not self.freshness.is_fresh():
            return False
        return not self.reads_each(tenant) or self._has(tenant, user)

    def _has(self, tenant: str, user: str) -> bool:
        """Return whether the user's facts were read. From now on they are in use."""
        if self._touched is not None:
            self._touched.add((tenant, user))
        return self._facts.has(tenant, user)

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
        facts = self._facts.get(tenant, target)
        if facts is None or is_doubted:
            return [*viewers()] if self.policy(tenant).is_open else ()
        if self.policy(tenant).is_open:
            return facts.privacy.hide_from
        return [viewer for viewer in viewers() if self.see(tenant, viewer, target, in_room=True) != "hidden"]

    def is_viewer_fact(self, tenant: str) -> bool:
        """Return whether a change of a user's facts can also change whom the user sees."""
        rule = self.policy(tenant)
        return rule.is_mutual or rule.policy == "ask"

    def hides_from(self, tenant: str, user: str) -> frozenset[str]:
        """Return the users from whom the user hides, as far as cached."""
        return (self._facts.get(tenant, user) or PLAIN).privacy.hide_from

    def is_hidden_from(self, tenant: str, user: str, viewer: str) -> bool:
        """Return whether the user hides from the viewer, whatever the policy; True while the facts are uncertain."""
        return (tenant, user) in self._doubted or viewer in self.hides_from(tenant, user)

    def hiders_from(self, tenant: str, viewer: str) -> Collection[str]:
        """Return the users who hide from the viewer, as far as cached."""
        return self._facts.hiders_from(tenant, viewer)

    def lists_hiders(self, tenant: str) -> bool:
        """Return whether users in one room see each other, except `hiders`, and all hiders are known."""
        return self.policy(tenant).is_open and not self.reads_each(tenant)

    def is_hider(self, tenant: str, user: str) -> bool:
        """Return whether some users do not see the user in a room, in a tenant that `lists_hiders`."""
        return bool(self.hides_from(tenant, user)) or (tenant, user) in self._doubted

    def hiders(self, tenant: str) -> list[str]:
        """Return all users of a tenant who are a hider."""
        known = {*self._facts.users(tenant), *(user for of, user in self._doubted if of == tenant)}
        return [user for user in known if self.is_hider(tenant, user)]

    def hidden_in_rooms(self, tenant: str, viewer: str) -> set[str]:
        """Return the users whom the viewer does not see in a room, in a tenant that `lists_hiders`."""
        doubted = [user for of, user in self._doubted if of == tenant and user != viewer]
        return {*self.hiders_from(tenant, viewer), *doubted}

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
        await self.freshness.known()
        await self._learn_missing(tenant, viewers, targets)
        if not self.freshness.is_fresh():  # the process was stopped during a read
            await self.freshness.known()
            await self._learn_missing(tenant, viewers, targets)

    async def _learn_missing(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        if tenant not in self._revisions:
            await self._begin(tenant)
        if not self.reads_each(tenant):
            return
        if self._facts.size > self._most:
            await self._drop_unused(tenant)
        users = {*viewers, *targets} if self.policy(tenant).is_mutual else targets
        while missing := [user for user in users if not self._has(tenant, user)]:
            await self._learn(tenant, missing)
            if not self.reads_each(tenant):
                return

    async def _learn(self, tenant: str, users: Sequence[str]) -> None:
        """Read the facts of these users. Note the users who were known and have different facts."""
        began = self._changes
        for at in range(0, len(users), AT_ONCE):
            found = await self._fetch([(tenant, user) for user in users[at : at + AT_ONCE]])
            await self._slices.turn()
            fresh = {key: of for key, of in found.items() if self._changed.get(key, 0) <= began}
            self._note_different(tenant, {user for (_, user), of in fresh.items() if self._put(tenant, user, of)})

    def _note_different(self, tenant: str, users: set[str]) -> None:
        if users:
            self._note_decisions([(tenant, user) for user in users])
            self._unreviewed.setdefault(tenant, set()).update(users)

    def _put(self, tenant: str, user: str, facts: VisibilityFacts) -> bool:
        """Set the facts about a user; return whether they were known and are different."""
        if self.reads_each(tenant) or not facts.privacy.is_plain:
            return self._facts.put(tenant, user, facts)
        is_known = self._facts.has(tenant, user)
        self._facts.remove(tenant, user)  # a listed tenant has only users who hide something
        return is_known

    async def _fetch(self, keys: Sequence[Key]) -> dict[Key, VisibilityFacts]:
        """Read facts: of a few users in a batch with other reads, of many users in a read of their own."""
        if len(keys) <= FEW:
            return dict(zip(keys, await asyncio.gather(*(self._reads.get(key) for key in keys)), strict=True))
        found = await self._read(keys)
        return {key: found.get(key, PLAIN) for key in keys}

    async def changed(self, tenant: str, users: Collection[str]) -> None:
        """Read the facts of changed users again. Until then decisions stay as before.

        Raise StoreUnavailable if the facts cannot be read.
        """
        self._note(tenant, users)
        await self._reload(tenant, users)
        self._doubted.difference_update((tenant, user) for user in users)
        self._unreviewed.get(tenant, set()).difference_update(users)  # the caller reviews them

    async def _reload(self, tenant: str, users: Collection[str]) -> None:
        """Read the facts of these users again if they are used, in slices."""
        async for some in self._slices.cut([*users], AT_ONCE):
            is_whole = self._facts.is_listed(tenant) or tenant in self._loading
            again = [user for user in some if is_whole or self._facts.has(tenant, user)]
            while again:
                began = self._changes
                await self._learn(tenant, again)
                again = [user for user in again if self._changed.get((tenant, user), 0) > began]

    def doubt(self, tenant: str, users: Collection[str]) -> None:
        """Hide users from all others until their changed facts can be read."""
        self._doubted.update((tenant, user) for user in users)
        self._note_decisions([(tenant, user) for user in users])

    def _note_decisions(self, keys: Collection[Key]) -> None:
        if keys:
            self._decisions += 1
            self._decided.update(dict.fromkeys(keys, self._decisions))

    def _void_reads(self, tenant: str, users: Collection[str]) -> None:
        """Ignore facts of these users that are being read: they may be older than a change."""
        if users:
            self._changes += 1
            self._changed.update(dict.fromkeys(((tenant, user) for user in users), self._changes))

    def _note(self, tenant: str, users: Collection[str]) -> None:
        self._void_reads(tenant, users)
        self._note_decisions([(tenant, user) for user in users])
        for user in users:
            self._visibility_webhook.forget(tenant, user)

    # --- all facts of a tenant ---

    async def _begin(self, tenant: str) -> None:
        """Read the state of a tenant at its first use."""
        began = self._changes
        with self._load(tenant):
            start = await self._tenants.get(tenant)
            if start is not None and tenant not in self._revisions:
                if start.listed is None:
                    self._facts.forget(tenant)  # facts that were read for a change before the revisions
                await self._apply(tenant, start, began)

    @contextmanager
    def _load(self, tenant: str) -> Iterator[None]:
        """Keep the facts that are read for changes meanwhile: the state that is being read may be older."""
        self._loading[tenant] += 1
        try:
            yield
        finally:
            self._loading[tenant] -= 1
            if not self._loading[tenant]:
                del self._loading[tenant]
                if tenant not in self._revisions:
                    self._facts.forget(tenant)

    async def _apply(self, tenant: str, start: _Start, began: int) -> None:
        """Set the state of a tenant, which was read after the change with the number `began`."""
        self._revisions[tenant] = start.revisions
        if start.listed is not None:
            later = [user for (of, user), number in self._changed.items() if of == tenant and number > began]
            known = {user: facts for user in later if (facts := self._facts.get(tenant, user)) is not None}
            self._note_different(tenant, self._facts.list_all(tenant, {**start.listed, **known}))
            await self._reload(tenant, later)  # the list may be newer than what was known

    async def refresh(self, tenants: Collection[str], *, tidy: bool = True) -> dict[str, set[str]]:
        """Read what changed since the last known revisions, in case a message was lost.

        Return the users about whom decisions may be different, by tenant. Facts about tenants that are not in `tenants`
        are dropped, with `tidy` also facts about users who are not in use. After StoreUnavailable, the next call also
        returns the users found so far.
        """
        async with self._turn:
            for tenant in [tenant for tenant in self._revisions if tenant not in tenants]:
                del self._revisions[tenant]
                self._facts.forget(tenant)
                self._unreviewed.pop(tenant, None)
            for _ in self._facts.free():
                await self._slices.turn()
            async for some in self._slices.cut([*self._revisions], TENANTS_AT_ONCE):
                await self._refresh_some(some)
            for tenant in [*self._revisions] if tidy and self._facts.size > MOST else ():
                await self._drop_unused(tenant)
            found, self._unreviewed = self._unreviewed, {}
        return {tenant: users for tenant, users in found.items() if users}

    def timed_tenants(self) -> list[str]:
        """Return the tenants where decisions change with time: contacts cease to be recent, and answers expire."""
        return [tenant for tenant in self._revisions if self.policy(tenant).policy in ("recent_contacts", "ask")]

    async def _refresh_some(self, tenants: Sequence[str]) -> None:
        since = [(tenant, kind, of) for tenant in tenants for kind, of in self._revisions[tenant].items()]
        revisions: dict[str, dict[FactKind, Revision]] = {tenant: {} for tenant in tenants}
        changed: dict[str, set[str] | None] = {tenant: set() for tenant in tenants}
        for (tenant, kind, _), found in zip(since, await self._store.changes(since), strict=True):
            before = changed[tenant]
            changed[tenant] = None if before is None or found.users is None else before | found.users
            revisions[tenant][kind] = found.revision
        for tenant, users in changed.items():
            if users is None:
                await self._read_all(tenant)
            else:
                self._void_reads(tenant, users)
                await self._reload(tenant, users)
                self._revisions[tenant] = revisions[tenant]
            if users != set() and not self.reads_each(tenant) and await self._weight(tenant) > MOST_LISTED:
                await self._unlist(tenant)

    async def _read_all(self, tenant: str) -> None:
        """Read all facts of a tenant again."""
        began = self._changes
        with self._load(tenant):
            start = (await self._read_tenants([tenant]))[tenant]
            if start.listed is None:
                if not self.reads_each(tenant):
                    await self._unlist(tenant)
                for some in self._facts.steps(tenant, AT_ONCE):
                    await self._reload(tenant, some)
            await self._apply(tenant, start, began)

    async def _weight(self, tenant: str) -> int:
        users = self._slices.cut([*self._facts.users(tenant)])
        return sum([1 + len(self.hides_from(tenant, user)) async for some in users for user in some])

    async def _unlist(self, tenant: str) -> None:
        """End the listing of a tenant, after the facts of all users in use were read.

        Meanwhile `learn` reads the facts of further users.
        """
        self._unlisting.add(tenant)
        try:
            for some in (await self._in_use(tenant)).steps(AT_ONCE):
                await self._slices.turn()
                await self._learn(tenant, [user for user, _ in some if not self._facts.has(tenant, user)])
            self._facts.unlist(tenant)
        finally:
            self._unlisting.discard(tenant)

    async def _drop_unused(self, tenant: str) -> None:
        """Drop the facts of users who are not in use, where facts are read for each user."""
        if self._touched is None and self.reads_each(tenant):
            self._touched = set()
            try:
                used = await self._in_use(tenant)
                async for some in self._slices.over(self._facts.steps(tenant, STEP)):
                    for user in some:
                        if user not in used and (tenant, user) not in self._touched:
                            self._facts.remove(tenant, user)
                self._most = max(MOST, 2 * self._facts.size)
            finally:
                self._touched = None

    async def prune(self) -> None:
        """Drop the numbers of changes that no read under way can have missed, in slices."""
        changed, self._long_ago = self._long_ago, self._changes
        decided, self._decided_long_ago = self._decided_long_ago, self._decisions
        for numbers, long_ago in (self._changed, changed), (self._decided, decided):
            async for some in self._slices.cut([*numbers]):
                for key in some:
                    if numbers.get(key, long_ago + 1) <= long_ago:
                        del numbers[key]
        await self._visibility_webhook.prune()

    async def _in_use(self, tenant: str) -> BucketDict[str, None]:
        """Return the users of a tenant who see other users, or are seen, on this node."""
        used = BucketDict[str, None]()
        for consumer in self.consumers:
            async for users in consumer.in_use(tenant):
                for user in users:
                    used[user] = None
        if self.policy(tenant).is_mutual:
            async for some in self._slices.cut(self._registry.keys()):
                for its, user in some:
                    if its == tenant:
                        used[user] = None
        return used

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

    async def _read_tenants(self, tenants: Sequence[str]) -> dict[str, _Start]:
        """Read revisions first: the lists that follow contain all changes up to them."""
        kinds = [(tenant, kind) for tenant in tenants for kind in self._kinds(tenant)]
        revisions: dict[str, dict[FactKind, Revision]] = {tenant: {} for tenant in tenants}
        found = await self._store.changes([(tenant, kind, LATEST) for tenant, kind in kinds])
        for (tenant, kind), (revision, _) in zip(kinds, found, strict=True):
            revisions[tenant][kind] = revision
        listed: dict[str, dict[str, VisibilityFacts] | None] = {
            tenant: {} for tenant in tenants if self.policy(tenant).policy in _LISTED_POLICIES
        }
        for tenant in await self._store.hiding([*listed]):
            listed[tenant] = await self._read_list(tenant)
        return {tenant: _Start(revisions[tenant], listed.get(tenant)) for tenant in tenants}

    def _kinds(self, tenant: str) -> tuple[FactKind, ...]:
        """Return the kinds of facts that decisions of the tenant need."""
        match self.policy(tenant).policy:
            case "contacts" | "recent_contacts":
                return "privacy", "contacts"
            case "shared_rooms":
                return "privacy", "members"
            case _:
                return ("privacy",)

    async def _read_list(self, tenant: str) -> dict[str, VisibilityFacts] | None:
        """Return the facts of all users who hide something, or None if there are too many."""
        found: dict[str, VisibilityFacts] = {}
        weight, after = 0, ""
        while page := await self._store.restricted(tenant, after, LIST_PAGE):
            found |= {user: VisibilityFacts(privacy) for user, privacy in page.items()}
            weight += sum(1 + len(privacy.hide_from) for privacy in page.values())
            if weight > MOST_LISTED:
                return None
            after = max(page)
        return found
