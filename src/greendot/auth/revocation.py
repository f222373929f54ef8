"""What was revoked counts no longer, on any node, within a second.

It is written first. Then all nodes are told, and each closes what it covers; those that hold the user's sessions say
so. A node that was not told reads it: before a hello, if the last read is a second old, every 15 seconds, and after it
was cut off. While the store cannot be read, what is known here counts: clients are not sent away because of it.

An entry ends with the last token from before it. Tokens that do not say when they were issued may be older than that:
for them the store is asked for entries that have ended, too.

A node with the memory engine cannot be asked by commands, which write into the store past it. It reads more often, and
confirms in the store when all that is covered has ended, with its last commands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import Protocol

from greendot.auth.model import Grants, Name, Revocation, Revocations, names_of
from greendot.engine.messages import Acknowledged, Revoked, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, StoreUnavailable, TokenError, TokenRevoked
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.store.revocations import RevocationStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

EVERY_S = 15.0
EVERY_ALONE_S = 2.0  # with the memory engine, where nobody else can say that something was revoked
ENDED_S = 0.05  # between two looks at whether the sessions have ended
AT_ONCE = 50  # sessions of a tenant that are closed in one turn of the loop
FRESH_S = 1.0  # a hello is content with what was read so long ago
PAGE = 1_000
REASON = "revoked"


class NodeSessions(Protocol):
    """The sessions of this node (`presence.sessions`)."""

    def here(self) -> list[Session]: ...
    def end(self, session: Session) -> None: ...


class RevocationService:
    """One for each node. No token may hold for longer than `longest_ms`: by then its revocation is forgotten."""

    def __init__(
        self,
        engine: Engine,
        store: RevocationStore,
        sessions: NodeSessions,
        context: NodeContext,
        rpc: ClusterRpc,
        longest_ms: int,
        *,
        alone: bool = False,  # no other node can hear of what is revoked here, and none can tell this one
    ) -> None:
        self.longest_ms = longest_ms
        self._alone = alone
        self.bus: BusTable = {Revoked: lambda topic, message: self.receive(message, topic.name)}
        self._engine = engine
        self._store = store
        self._sessions = sessions
        self._context = context
        self._rpc = rpc
        self._known = Revocations()
        self._kept: BatchedReads[Name, Revocation | None] = BatchedReads(context, store.find_revocations, None)
        self._after = 0  # the number of the newest that was read
        self._asked = -inf  # when the store was last asked, by the monotonic clock
        self._failed = False  # the last time
        self._turn = asyncio.Lock()  # held while it is
        self._confirmed = 0  # the number of the newest that is confirmed, or is about to be
        self._confirmed_at = -inf  # by the monotonic clock
        self._ending: set[Session] = set()  # sessions that were revoked and may still be here

    async def start(self) -> None:
        await self._read_quietly()
        self._later()

    # --- who comes ---

    async def admit(self, grants: Grants, session: str | None = None) -> None:
        """TokenError if the token, or the session it is to go on with, was revoked, or could outlive its revocation."""
        issued = self._context.clock.now_ms() if grants.issued_at is None else grants.issued_at
        if grants.expires_at - issued > self.longest_ms:
            raise TokenError(f"a token may hold for {self.longest_ms // 1000} s at most (auth.longest_token_s)")
        if not self._is_fresh():
            async with self._turn:
                if not self._is_fresh():  # nobody has asked meanwhile
                    await self._read_quietly()
        self.check(grants, session)
        if grants.issued_at is None:
            await self._check_history(grants)

    async def _check_history(self, grants: Grants) -> None:
        """TokenRevoked if a token without a date of issue was revoked at any time: it may be from before."""
        try:
            found = await asyncio.gather(*(self._kept.get(name) for name in names_of(grants)))
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="what was revoked", reason=error)
            return
        if any(found):
            raise TokenRevoked("the token was revoked, or one like it: it does not say when it was issued (`iat`)")

    def check(self, grants: Grants, session: str | None = None) -> None:
        """The same, by what is known here."""
        if self._known.covers(grants, session):
            raise TokenRevoked("the token or the session was revoked")

    def of_user(self, tenant: str, user: str) -> Revocation | None:
        """What is known here to be revoked of all that the user was given."""
        return self._known.of_user(tenant, user)

    # --- revoking ---

    async def revoke(self, revocation: Revocation, user: str | None = None) -> int:
        """How many sockets were closed. When this returns nothing more is written to any; EngineUnavailable: it is not
        known of some; do it again. `user` is whose token or session it is, if that is known: only their nodes are
        waited for."""
        kept = await self._store.put_revocation(revocation)
        self._known.put(kept)
        closed = await self._close_all([kept])
        live = {info.node for info in await self._engine.nodes() if info.state == "live"}
        whose = kept.value if kept.kind == "user" else user
        needed = live
        if whose is not None:
            needed = {entry.node for entry in await self._engine.sessions(kept.tenant, whose)}
        here = self._rpc.name()
        for node in live - needed - {here}:
            # A session of theirs may be on its way there.
            self._engine.publish(Topic("node", "", node), Revoked(kept))
        return closed + await self._rpc.call(needed - {here}, lambda asker, number: Revoked(kept, asker, number))

    def receive(self, message: Revoked, node: str) -> None:
        """Another node was asked to revoke something."""
        self._known.put(message.revocation)
        if message.revocation.kind == "tenant":
            self._context.tasks.spawn(self._end_tenant(message, node))
        else:
            self._acknowledge(message, node, self._close([message.revocation]))

    async def _end_tenant(self, message: Revoked, node: str) -> None:
        """Close all sessions, and acknowledge when their last commands are done."""
        closed = await self._close_all([message.revocation])
        await self._ended()
        self._acknowledge(message, node, closed)

    def _acknowledge(self, message: Revoked, node: str, closed: int) -> None:
        if message.asker:
            self._engine.publish(Topic("node", "", message.asker), Acknowledged(message.number, node, closed))

    async def _close_all(self, revoked: Sequence[Revocation]) -> int:
        """Like `_close`, also for tenants: their sessions are many, and are closed a few in each turn of the loop."""
        closed = self._close(revoked)
        if any(revocation.kind == "tenant" for revocation in revoked):
            for number, session in enumerate(self._sessions.here()):
                connection = session.connection
                if self.recheck(session):
                    closed += connection is not None
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)
        return closed

    async def _ended(self) -> None:
        """Wait until no session that was revoked by now is here: it leaves when its last command is done."""
        ending = {*self._ending}
        while ending & self._still_here():  # noqa: ASYNC110  (sessions end in several ways, each of them soon)
            await asyncio.sleep(ENDED_S)

    def _still_here(self) -> set[Session]:
        """Forget the revoked sessions that have left; return the others."""
        sessions = self._context.registry.sessions
        self._ending = {session for session in self._ending if sessions.get(session.id) is session}
        return self._ending

    def _close(self, revoked: Sequence[Revocation]) -> int:
        """End the sessions these cover; how many sockets that closed."""
        closed = 0
        for session in [*self._affected(revoked)]:
            connection = session.connection
            if self.recheck(session):
                closed += connection is not None
                if (session.tenant, session.id) in _values(revoked, "session"):
                    self._context.tasks.spawn(self._revoke_token(session.grants))
        return closed

    def recheck(self, session: Session) -> bool:
        """End the session if it is covered; whether it was just now."""
        if session.revoked or not self._known.covers(session.grants, session.id):
            return False
        session.revoked = True
        self._ending.add(session)
        if session.connection is not None:
            session.connection.revoke(REASON)
        else:
            self._sessions.end(session)
        return True

    def _affected(self, revoked: Sequence[Revocation]) -> Iterator[Session]:
        """Sessions that may be covered, some of them twice."""
        registry = self._context.registry
        for revocation in revoked:
            if revocation.kind == "user":
                yield from registry.sessions_of(revocation.tenant, revocation.value)
            elif revocation.kind == "session" and (session := registry.sessions.get(revocation.value)) is not None:
                yield session
        tokens = _values(revoked, "jti")
        if tokens:
            # One look at all for all of them: tokens are not kept by their ids, which few have and fewer need.
            yield from (s for s in registry.sessions.values() if (s.tenant, s.grants.token_id) in tokens)

    async def _revoke_token(self, grants: Grants) -> None:
        """Whose session is revoked must not come back with the same token."""
        if grants.token_id is None:
            return
        revocation = Revocation(grants.tenant, "jti", grants.token_id, self.expires_at(self._context.clock.now_ms()))
        try:
            await self.revoke(revocation, grants.user)
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.REVOCATION_UNSURE, reason=error)

    def expires_at(self, before: int) -> int:
        """When no token that was issued before can be valid any more."""
        return before + self.longest_ms

    # --- what was not heard ---

    def refresh(self) -> None:
        """Something may have been said that was not heard here."""
        self._asked = -inf
        self._context.tasks.spawn(self._read_in_turn())

    def _is_fresh(self) -> bool:
        return self._context.timers.now() - self._asked < FRESH_S

    def _later(self) -> None:
        # Not all nodes at once.
        # A store that is away is not asked more often, nor the log filled with it.
        every_s = EVERY_ALONE_S if self._alone and not self._failed else EVERY_S
        self._context.timers.set(every_s * random.uniform(0.9, 1.0), self._on_timer)

    def _on_timer(self, _: None) -> None:
        self._later()
        self._context.tasks.spawn(self._read_in_turn())

    async def _read_in_turn(self) -> None:
        async with self._turn:
            await self._read_quietly()

    async def _read_quietly(self) -> None:
        try:
            await self._read()
            self._failed = False
        except StoreUnavailable as error:
            self._failed = True
            log(log_events.WORK_LATER, work="what was revoked", reason=error)

    async def _read(self) -> None:
        now = self._context.clock.now_ms()
        self._known.expire(now)
        self._still_here()
        try:
            while True:
                page = await self._store.revocations(self._after, PAGE, now)
                fresh = [revocation for _, revocation in page if self._known.put(revocation)]
                await self._close_all(fresh)
                if page:
                    self._after = page[-1].number
                if len(page) < PAGE:
                    break
        finally:
            # Also when it failed: those who come meanwhile need not wait for it one after the other.
            self._asked = self._context.timers.now()
        if self._alone and (self._after > self._confirmed or self._asked - self._confirmed_at >= EVERY_S):
            self._confirmed, self._confirmed_at = self._after, self._asked
            self._context.tasks.spawn(self._confirm(self._after))

    async def _confirm(self, number: int) -> None:
        """Record in the store that what the revocations up to this number cover has ended here."""
        await self._ended()
        try:
            await self._store.confirm_revocations(number)
        except StoreUnavailable as error:
            self._confirmed_at = -inf  # the next look does it
            log(log_events.WORK_LATER, work="confirming revocations", reason=error)


def _values(revoked: Collection[Revocation], kind: str) -> set[tuple[str, str | None]]:
    return {(revocation.tenant, revocation.value) for revocation in revoked if revocation.kind == kind}
