"""Revocation of tokens and sessions, effective on all nodes within a second.

A revocation is stored first. Then it is published to all nodes, and each closes the connections it covers. Nodes with
sessions of the user acknowledge. A node that missed the message reads the store: before a hello, if the last read is
older than a second; every 15 seconds; and after it was cut off. While the store cannot be read, the known revocations
count, and clients are not refused because of it.

An entry expires with the last token from before it. Tokens without a time of issue may be older than that. For them the
store is asked for expired entries too, unless it had no entry at all at the last read.

A node with the memory engine receives no messages from CLI commands, which write directly to the store. It reads the
store more often, and confirms in the store when all covered sessions have ended, with their last commands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Protocol

from greendot.auth.model import Grants, Name, Revocation, Revocations, names_of
from greendot.engine.messages import Acknowledged, Revoked, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, StoreUnavailable, TokenError, TokenRevoked, UserBanned
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.context import NodeContext
from greendot.node.needed_nodes import live_nodes, nodes_of_user
from greendot.node.session import Session
from greendot.store.restrictions import FOREVER, RestrictionKind
from greendot.store.revocations import RevocationStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

EVERY_S = 15.0
EVERY_ALONE_S = 2.0  # with the memory engine, where no other node can publish a revocation
ENDED_S = 0.05  # between two checks whether sessions have ended
AT_ONCE = 50  # sessions of a tenant that are closed in one turn of the loop
FRESH_S = 1.0  # a hello needs no read if the last one is younger
PAGE = 1_000
REASON = "revoked"
BANNED = "the app has banned this user"  # reason of the close after a ban


class NodeSessions(Protocol):
    """Sessions of this node (`presence.sessions`)."""

    def here(self) -> list[Session]: ...
    def end(self, session: Session) -> None: ...


_OF_USERS = ("user", "ban", "mute")  # kinds of entries about one user
Names = tuple[Name, ...]  # of all revocations that could cover a token


class RevocationService:
    """Revocations of one node.

    No token may be valid for longer than `longest_ms`: by then its revocation has expired.
    """

    def __init__(
        self,
        engine: Engine,
        store: RevocationStore,
        sessions: NodeSessions,
        context: NodeContext,
        rpc: ClusterRpc,
        longest_ms: int,
        *,
        alone: bool = False,  # no other node receives this node's revocations, or publishes any to it
    ) -> None:
        self.longest_ms = longest_ms
        self._alone = alone
        self.bus: BusTable = {Revoked: lambda topic, message: self.receive(message, topic.name)}
        # Called with tenant and user when the user's mute in the tenant begins, changes or is lifted.
        self.mute_listeners: list[Callable[[str, str], None]] = []
        # Called with tenant and token id when a token is revoked.
        self.token_listeners: list[Callable[[str, str], None]] = []
        self._engine = engine
        self._store = store
        self._sessions = sessions
        self._context = context
        self._rpc = rpc
        self._known = Revocations()
        self._kept: BatchedReads[Names, bool] = BatchedReads(context, self._find_any, False)
        self._after = 0  # number of the newest entry that was read
        self._asked = -inf  # monotonic time of the last read of the store
        self._failed = False  # the last read failed
        self._has_history = True  # whether the store may have an entry, also an expired one
        self._turn = asyncio.Lock()  # held during a read
        self._confirmed = 0  # number of the newest entry that is confirmed, or about to be
        self._confirmed_at = -inf  # monotonic time
        self._ending: set[Session] = set()  # revoked sessions that may still exist

    async def start(self) -> None:
        await self._read_quietly()
        if not self._failed and not self._after:
            with suppress(StoreUnavailable):
                self._has_history = bool(await self._store.revocations(0, 1))
        self._later()

    # --- tokens of hellos ---

    async def admit(self, grants: Grants, session: str | None = None) -> None:
        """Raise TokenError if the token or the session to resume is revoked.

        Also raise TokenError if the token could outlive its revocation.
        """
        issued = self._context.clock.now_ms() if grants.issued_at is None else grants.issued_at
        if grants.expires_at - issued > self.longest_ms:
            raise TokenError(
                f"the token is valid for more than {self.longest_ms // 1000} s (auth.longest_token_s); "
                "issue tokens with an earlier `exp`"
            )
        if not self._is_fresh():
            async with self._turn:
                if not self._is_fresh():  # no other hello has read meanwhile
                    await self._read_quietly()
        self.check(grants, session)
        if grants.issued_at is None and self._has_history:
            await self._check_history(grants)

    async def _check_history(self, grants: Grants) -> None:
        """Raise TokenRevoked if a token without a time of issue was revoked at any time: it may be older."""
        try:
            was_revoked = await self._kept.get(tuple(names_of(grants)))
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="reading revocations", reason=error)
            return
        if was_revoked:
            raise TokenRevoked(
                "a revocation may cover this token, because the token has no `iat`; issue tokens with `iat`"
            )

    async def _find_any(self, of_tokens: Sequence[Names]) -> dict[Names, bool]:
        """Read whether the store has a revocation with one of the names, for many tokens."""
        found = await self._store.find_revocations([*{name for names in of_tokens for name in names}])
        return {names: True for names in of_tokens if not found.keys().isdisjoint(names)}

    def check(self, grants: Grants, session: str | None = None) -> None:
        """Like `admit`, but by the known revocations alone, without a read."""
        if self._known.is_empty:  # nearly always
            return
        if self._known.covers(grants, session):
            raise TokenRevoked("the token or the session was revoked; get a new token")
        if until := self.restricted_until("ban", grants.tenant, grants.user):
            raise UserBanned(None if until == FOREVER else until - self._context.clock.now_ms())

    def restricted_until(self, kind: RestrictionKind, tenant: str, user: str) -> int:
        """Return the end of a user's mute or ban in the tenant, as far as this node knows; 0 if there is none now."""
        return self._known.restricted_until(kind, tenant, user, self._context.clock.now_ms())

    def of_user(self, tenant: str, user: str) -> Revocation | None:
        """Return the known entry that revokes the user's earlier tokens, if any."""
        return self._known.of_user(tenant, user)

    # --- revoking ---

    async def revoke(self, revocation: Revocation, user: str | None = None) -> int:
        """Revoke, and return the number of closed connections on all nodes.

        After the return nothing more is written to a revoked connection. EngineUnavailable means that some nodes did
        not acknowledge: call again. `user` is the owner of the token or session, if known: then only the nodes of this
        user are waited for.
        """
        return await self.publish(await self._store.put_revocation(revocation), user)

    async def publish(self, kept: Revocation, user: str | None = None) -> int:
        """Apply an entry of the store here and on all nodes, as `revoke` does."""
        self._learn(kept)
        closed = await self._close_all([kept])
        live = await live_nodes(self._engine)
        whose = kept.value if kept.kind in _OF_USERS else user
        needed = live
        if whose is not None:
            needed = await nodes_of_user(self._engine, kept.tenant, whose)
        here = self._rpc.name()
        for node in live - needed - {here}:
            # A session of the user may be moving to this node.
            self._engine.publish(Topic("node", "", node), Revoked(kept))
        return closed + await self._rpc.call(needed - {here}, lambda asker, number: Revoked(kept, asker, number))

    def _learn(self, revocation: Revocation) -> bool:
        """Let the revocation count on this node; return whether it adds something."""
        self._has_history = True
        is_new = self._known.put(revocation)
        if is_new and revocation.kind == "mute":
            for listener in self.mute_listeners:
                listener(revocation.tenant, revocation.value)
        if is_new and revocation.kind == "jti":
            for listener in self.token_listeners:
                listener(revocation.tenant, revocation.value)
        return is_new

    def receive(self, message: Revoked, node: str) -> None:
        """Apply a revocation that another node published."""
        self._learn(message.revocation)
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
        """Like `_close`, but also for tenants.

        Their sessions are many, and are closed a few in each turn of the loop.
        """
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
        """Wait until all sessions revoked by now have ended. A session ends when its last command is done."""
        ending = {*self._ending}
        while ending & self._still_here():  # noqa: ASYNC110  (sessions end in several ways, each of them soon)
            await asyncio.sleep(ENDED_S)

    def _still_here(self) -> set[Session]:
        """Forget the revoked sessions that have ended; return the remaining ones."""
        sessions = self._context.registry.sessions
        self._ending = {session for session in self._ending if sessions.get(session.id) is session}
        return self._ending

    def _close(self, revoked: Sequence[Revocation]) -> int:
        """End the covered sessions; return the number of closed connections."""
        closed = 0
        for session in [*self._affected(revoked)]:
            connection = session.connection
            if self.recheck(session):
                closed += connection is not None
                if (session.tenant, session.id) in _values(revoked, "session"):
                    self._context.tasks.spawn(self._revoke_token(session.grants))
        return closed

    def recheck(self, session: Session) -> bool:
        """End the session if a revocation covers it; return whether it ended by this call."""
        if session.revoked:
            return False
        reason = REASON if self._known.covers(session.grants, session.id) else BANNED
        if reason is BANNED and not self.restricted_until("ban", session.tenant, session.user):
            return False
        session.revoked = True
        self._ending.add(session)
        if session.connection is not None:
            session.connection.revoke(reason)
        else:
            self._sessions.end(session)
        return True

    def _affected(self, revoked: Sequence[Revocation]) -> Iterator[Session]:
        """Yield sessions that may be covered, some of them twice."""
        registry = self._context.registry
        for revocation in revoked:
            if revocation.kind in ("user", "ban"):
                yield from registry.sessions_of(revocation.tenant, revocation.value)
            elif revocation.kind == "session" and (session := registry.sessions.get(revocation.value)) is not None:
                yield session
        tokens = _values(revoked, "jti")
        if tokens:
            # One pass over all sessions: there is no index by token id, because few tokens have one and fewer are
            # revoked.
            yield from (s for s in registry.sessions.values() if (s.tenant, s.grants.token_id) in tokens)

    async def _revoke_token(self, grants: Grants) -> None:
        """Revoke the token of a revoked session, so that the client cannot return with it."""
        if grants.token_id is None:
            return
        revocation = Revocation(grants.tenant, "jti", grants.token_id, self.expires_at(self._context.clock.now_ms()))
        try:
            await self.revoke(revocation, grants.user)
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.REVOCATION_UNSURE, reason=error)

    def expires_at(self, before: int) -> int:
        """Return the time after which no token issued before `before` can be valid, milliseconds UTC."""
        return before + self.longest_ms

    # --- missed revocations ---

    def refresh(self) -> None:
        """Read the store, because messages may have been missed."""
        self._asked = -inf
        self._context.tasks.spawn(self._read_in_turn())

    def _is_fresh(self) -> bool:
        return self._context.timers.now() - self._asked < FRESH_S

    def _later(self) -> None:
        # Random, so that nodes do not read at the same time. An unavailable store is not read more often, and does not
        # fill the log.
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
            log(log_events.WORK_LATER, work="reading revocations", reason=error)

    async def _read(self) -> None:
        now = self._context.clock.now_ms()
        self._known.expire(now)
        self._still_here()
        try:
            while True:
                # The first entry of all is read even if it has expired: tokens without a time of issue may be older.
                page = await self._store.revocations(self._after, PAGE, now if self._has_history else 0)
                fresh = [revocation for _, revocation in page if self._learn(revocation)]
                await self._close_all(fresh)
                if page:
                    self._after = page[-1].number
                if len(page) < PAGE:
                    break
        finally:
            # Also after a failure: hellos meanwhile need not wait for it one after the other.
            self._asked = self._context.timers.now()
        if self._alone and (self._after > self._confirmed or self._asked - self._confirmed_at >= EVERY_S):
            self._confirmed, self._confirmed_at = self._after, self._asked
            self._context.tasks.spawn(self._confirm(self._after))

    async def _confirm(self, number: int) -> None:
        """Record in the store that the sessions covered by revocations up to `number` have ended on this node."""
        await self._ended()
        try:
            await self._store.confirm_revocations(number)
        except StoreUnavailable as error:
            self._confirmed_at = -inf  # the next read confirms
            log(log_events.WORK_LATER, work="confirming revocations", reason=error)


def _values(revoked: Collection[Revocation], kind: str) -> set[tuple[str, str | None]]:
    return {(revocation.tenant, revocation.value) for revocation in revoked if revocation.kind == kind}
