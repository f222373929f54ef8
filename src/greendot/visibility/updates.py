"""Updates of visibility: stored, published to all nodes, and applied to viewers.

A change is complete when every node has applied it: from then on no user sees what was hidden. Messages between nodes
may be lost, and contacts stop being recent by themselves. All decisions in use are therefore made again periodically.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping

from greendot.engine.messages import Acknowledged, Topic, VisibilityChanged
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.ids import Key
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.commands import CommandTable, Outcome
from greendot.node.context import NodeContext
from greendot.node.needed_nodes import live_nodes
from greendot.node.session import Connection, Session
from greendot.node.timer_model import Timer
from greendot.protocol.codes import Err
from greendot.protocol.commands import LastSeen, PrivacySet
from greendot.protocol.replies import PrivacyReply
from greendot.store.visibility import PrivacyStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.model import Privacy
from greendot.visibility.webhook import REST_S, VisibilityWebhook

AGAIN_S = 30.0  # seconds between two refreshes of all decisions in use
RETRY_S = 1.0
MOST_CONTACTS = 10_000  # contacts of one user


class VisibilityUpdates:
    """Changes of visibility, made on this node or received from another."""

    def __init__(
        self,
        engine: Engine,
        store: PrivacyStore,
        context: NodeContext,
        cache: VisibilityCache,
        webhook: VisibilityWebhook,
        rpc: ClusterRpc,
    ) -> None:
        self._engine = engine
        self._store = store
        self._context = context
        self._cache = cache
        self._webhook = webhook
        self._rpc = rpc
        self._freshness = cache.freshness
        self._freshness.read, self._freshness.review = self._read_changes, self._review_changes
        self._acting = Counter[Key]()  # users whose changes are being applied
        self._timer: Timer | None = None
        self._retries: dict[str, Timer] = {}  # by tenant: the timer of the next review
        webhook.listeners.append(self._unanswered)
        # By `VisibilityChanged.what`: called with the changed user, before the node acknowledges the change.
        self.appliers: dict[str, Callable[[Key], Awaitable[None]]] = {}
        # Called with the changed user on a node that knows no facts of the tenant, so that it shows nothing older.
        self.unused: list[Callable[[Key], Awaitable[None]]] = []
        self.refreshers: list[Callable[[Collection[str]], Awaitable[None]]] = []  # called with the tenants in use
        self.commands: CommandTable = {PrivacySet: self._privacy_set}
        self.bus: BusTable = {VisibilityChanged: lambda topic, message: self.receive(message, topic.name)}

    async def _privacy_set(self, connection: Connection, session: Session, command: PrivacySet) -> Outcome:
        kept = await self.set_privacy(session.key, command.last_seen, command.hide_from)
        return PrivacyReply(kept.last_seen, sorted(kept.hide_from))

    def start(self) -> None:
        # Answers of the app are requested again after half of their lifetime.
        period_s = min(AGAIN_S, self._webhook.shortest_s / 2)
        self._timer = self._context.timers.set(period_s * random.uniform(0.8, 1.0), self._on_timer)
        self.greet()

    # --- changes made on this node ---

    async def set_privacy(self, key: Key, last_seen: LastSeen | None, hide_from: Collection[str] | None) -> Privacy:
        """Store what the user hides; None keeps a setting. Return the stored settings.

        Raise EngineUnavailable if the change is stored, but a node has not confirmed it.
        """
        if last_seen is None and hide_from is None:
            return (await self._store.privacies([key])).get(key, Privacy())
        users = None if hide_from is None else frozenset(hide_from) - {key[1]}
        kept = await self._store.put_privacy(*key, last_seen=last_seen, hide_from=users)
        if await self.publish(*key) > 1 and users:
            # A node may have published a signal before it applied the change. All such signals are published now.
            await self.publish(*key)
        return kept

    async def put_contact(self, key: Key, other: str, at: int) -> None:
        if not await self._store.put_contact(*key, other, at, most=MOST_CONTACTS):
            raise Refused(Err.TOO_MANY, f"a user may have at most {MOST_CONTACTS} contacts; remove a contact first")
        await self.publish(*key)

    async def remove_contact(self, key: Key, other: str) -> None:
        await self._store.remove_contact(*key, other)
        await self.publish(*key)

    async def members_changed(self, tenant: str, user: str) -> None:
        """Publish a change of the user's rooms, if the policy is `shared_rooms`."""
        if self._cache.policy(tenant).policy == "shared_rooms":
            await self.publish(tenant, user)

    async def publish(self, tenant: str, user: str, what: str = "") -> int:
        """Publish a change that is stored. Return the number of nodes, when none shows the user by older facts.

        Raise EngineUnavailable if a node has not confirmed the change.
        """
        nodes = await live_nodes(self._engine)
        await self._rpc.confirm(
            nodes, lambda asker, number: VisibilityChanged(tenant, user, asker, number, reports_arrival=True, what=what)
        )
        return len(nodes)

    def greet(self) -> None:
        """Learn which nodes report arrivals, and show them that this node does."""
        live, own = {*self._engine.live_nodes()}, self._rpc.name()
        self._rpc.prompt &= live
        for node in live - self._rpc.prompt - {own}:
            self._engine.publish(Topic("node", "", node), VisibilityChanged("", "", own, 0, reports_arrival=True))

    # --- changes received ---

    def receive(self, message: VisibilityChanged, node: str) -> None:
        """Apply a change, then acknowledge it to the node that waits for it, which may be this node."""
        if message.reports_arrival:
            self._rpc.prompt.add(message.asker)
            self._engine.publish(Topic("node", "", message.asker), Acknowledged(message.number, node, is_arrival=True))
        if message.number:  # else only a greeting
            self._context.tasks.spawn(self._act(message, node))

    async def _act(self, message: VisibilityChanged, node: str) -> None:
        self._acting[message.tenant, message.user] += 1
        try:
            await self._apply(message, node)
        finally:
            self._acting[message.tenant, message.user] -= 1
            self._acting += Counter()  # drops zeros

    async def _apply(self, message: VisibilityChanged, node: str) -> None:
        tenant, users = message.tenant, [message.user]
        if (applier := self.appliers.get(message.what)) is not None:
            await self._apply_other(message, node, applier)
            return
        try:
            if self._cache.is_used(tenant):
                await self._cache.changed(tenant, users)
        except StoreUnavailable as error:
            log(log_events.VISIBILITY_UNKNOWN, reason=error)
            self._cache.doubt(tenant, users)
            self._context.timers.set(RETRY_S, self._act_again, message)
        if not self._cache.is_used(tenant):
            for apply in self.unused:
                await apply((tenant, message.user))
        elif not await self._review(tenant, users):
            return
        self._engine.publish(Topic("node", "", message.asker), Acknowledged(message.number, node))

    async def _apply_other(
        self, message: VisibilityChanged, node: str, applier: Callable[[Key], Awaitable[None]]
    ) -> None:
        """Apply a change that another service keeps. Without an acknowledgement, the asker does not answer."""
        try:
            await applier((message.tenant, message.user))
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.WORK_LATER, work="applying a change of a user", reason=error)
        else:
            self._engine.publish(Topic("node", "", message.asker), Acknowledged(message.number, node))

    def _act_again(self, message: VisibilityChanged) -> None:
        self._context.tasks.spawn(self._learn_again(message))

    async def _learn_again(self, message: VisibilityChanged) -> None:
        tenant, users = message.tenant, [message.user]
        try:
            await self._cache.changed(tenant, users)
        except StoreUnavailable:
            self._context.timers.set(RETRY_S, self._act_again, message)
            return
        await self._review(tenant, users)

    async def _review(self, tenant: str, users: Collection[str] | None) -> bool:
        """Decide again for these users; return whether all decisions were made. Schedule a retry if not."""
        try:
            for consumer in self._cache.consumers:
                await consumer.review(tenant, users)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="review of visibility in a tenant", reason=error)
            self._unanswered(tenant)
            return False
        return True

    # --- missed messages ---

    def lost(self) -> None:
        """Refresh all decisions in use, because messages may have been missed."""
        self._freshness.doubt()

    def reborn(self) -> None:
        """Refresh the same, and the members of rooms, because other nodes did not wait for a node declared dead."""
        self._freshness.doubt(was_dead=True)
        self.greet()

    def _on_timer(self, _: None) -> None:
        self.start()
        self._context.tasks.spawn(self._refresh_all())

    def _unanswered(self, tenant: str) -> None:
        """Retry the review when the webhook has rested: REST_S after the last failure."""
        self._context.timers.cancel(self._retries.get(tenant))
        self._retries[tenant] = self._context.timers.set(REST_S, self._retry_review, tenant)

    def _retry_review(self, tenant: str) -> None:
        del self._retries[tenant]
        self._context.tasks.spawn(self._review_all(tenant))

    async def _review_all(self, tenant: str) -> None:
        await self._review(tenant, None)

    async def _read_changes(self) -> dict[str, set[str]]:
        """Read the changes of facts in use; return the users whose facts are different."""
        return await self._refresh(tidy=False)

    async def _refresh(self, *, tidy: bool) -> dict[str, set[str]]:
        tenants = self._context.registry.tenants
        for refresh in self.refreshers:
            await refresh(tenants)
        return await self._cache.refresh(tenants, tidy=tidy)

    async def _review_changes(self, changed: Mapping[str, set[str]]) -> None:
        """Review these users, and those whose change was received and is not reviewed yet."""
        for tenant in {*changed, *(tenant for tenant, _ in self._acting)}:
            acting = {user for its, user in self._acting if its == tenant}
            await self._review(tenant, changed.get(tenant, set()) | acting)

    async def _refresh_all(self) -> None:
        try:
            found = await self._refresh(tidy=True)
            for tenant, users in {**found, **dict.fromkeys(self._cache.timed_tenants())}.items():
                await self._review(tenant, users)
        except (StoreUnavailable, EngineUnavailable) as error:
            log(log_events.WORK_LATER, work="refresh of visibility", reason=error)
        await self._cache.prune()
