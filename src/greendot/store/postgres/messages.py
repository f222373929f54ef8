"""Messages in PostgreSQL, written in batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from greendot.errors import GreendotError, NoSuchMessage, Restricted, RoomArchived, SlowMode, StaleMembers
from greendot.ids import Bound, Key, check_text, new_message_id
from greendot.store.postgres.group_commit import GroupCommit
from greendot.store.postgres.pool import Link, Pool
from greendot.store.postgres.reactions import RECORD, ReactionWrites
from greendot.store.restrictions import pace
from greendot.store.rooms import BusMode, Draft, MessageStore, Record, Written

MESSAGE = f"SELECT {RECORD} FROM greendot_messages m WHERE tenant = $1 AND room = $2 AND seq = $3"
_PAGE = f"SELECT {RECORD} FROM greendot_messages m WHERE tenant = $1 AND room = $2 AND seq > $3 AND seq < $4"
AFTER = f"{_PAGE} ORDER BY seq LIMIT $5"
NEWEST = f"{_PAGE} ORDER BY seq DESC LIMIT $5"

LOCK = """
    SELECT tenant, room, head, members_rev, bus, archived, slow_mode_s FROM greendot_rooms
    WHERE (tenant, room) IN (SELECT * FROM unnest($1::text[], $2::text[])) ORDER BY tenant, room FOR UPDATE
"""
KNOWN = f"""
    SELECT m.tenant, m.key, {RECORD}
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (tenant, room, user_id, key)
    JOIN greendot_messages m USING (room, user_id, key)
    WHERE m.tenant || '' = k.tenant -- not by the primary key, which would read the whole room for each of the keys
"""
# Users who are muted or banned in the tenant, in the same statement: another one would cost a round trip. Columns of
# such a row: tenant, kind, no room, end, nothing, user.
KNOWN_OR_RESTRICTED = f"""{KNOWN}
    UNION ALL
    SELECT x.tenant, x.kind, '', x.until, '', x.user_id, NULL, ''::bytea, 0, NULL, NULL, NULL
    FROM unnest($5::text[], $6::text[]) AS u (tenant, user_id)
    JOIN greendot_restrictions x USING (tenant, user_id) WHERE x.room = ''
"""
SENDS = """
    SELECT s.tenant, s.room, s.user_id, s.at
    FROM unnest($1::text[], $2::text[], $3::text[]) AS k (tenant, room, user_id)
    JOIN greendot_slow_sends s USING (tenant, room, user_id)
"""
_PUT_SENDS = """
    INSERT INTO greendot_slow_sends AS s (tenant, room, user_id, at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
    ON CONFLICT (tenant, user_id, room) DO UPDATE SET at = greatest(s.at, excluded.at)
"""
CHANGEABLE = """
    SELECT m.tenant, m.room, m.seq FROM unnest($1::text[], $2::text[], $3::bigint[]) AS k (tenant, room, seq)
    JOIN greendot_messages m USING (tenant, room, seq) WHERE m.op IS NULL
"""
_HEADS = """
    heads AS (
        UPDATE greendot_rooms r SET head = h.head
        FROM unnest($1::text[], $2::text[], $3::bigint[]) AS h (tenant, room, head)
        WHERE r.tenant = h.tenant AND r.room = h.room
    )
"""
_INSERT = """
    INSERT INTO greendot_messages (tenant, room, seq, id, user_id, name, body, key, at, ref, op, traceparent)
    SELECT * FROM unnest($4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bytea[],
                         $11::text[], $12::bigint[], $13::bigint[], $14::text[], $15::text[])
"""
# Webhook events are queued in the same statement, without another round trip.
_HOOKS = """
    hooks AS (
        INSERT INTO greendot_hook_events (tenant, type, stream, seq, at)
        SELECT tenant, 'room.message', room, seq, at
        FROM unnest($4::text[], $5::text[], $6::bigint[], $12::bigint[]) AS h (tenant, room, seq, at)
        WHERE tenant = ANY ($16::text[])
    )
"""
WRITE = f"WITH {_HEADS} {_INSERT}"
WRITE_HOOKED = f"WITH {_HEADS}, {_HOOKS} {_INSERT}"
_BEYOND = 2**62  # above every number
_Ident = tuple[str, str, str, str]  # tenant, room, user, key


class Message(NamedTuple):
    """Draft with its room. Its id is made once, so that a retry recognises the row of an earlier attempt."""

    tenant: str
    room: str
    draft: Draft
    id: str
    moderated: bool = False  # written also in an archived room, and for a deleted message

    @property
    def stream(self) -> Key:
        return self.tenant, self.room

    @property
    def sender(self) -> tuple[str, str, str]:
        return self.tenant, self.room, self.draft.user

    @property
    def ident(self) -> _Ident:
        return self.tenant, self.room, self.draft.user, self.draft.key


class PostgresMessages:
    """PostgreSQL adapter of `MessageStore`."""

    _links: Pool
    _appends: GroupCommit[Message, Written | None]

    async def append(self, tenant: str, room: str, draft: Draft) -> Written | None:
        check_text((tenant, room, draft.user, draft.name, draft.key, draft.traceparent, draft.reaction))
        message = Message(tenant, room, draft, new_message_id())
        return await self._appends.do(message, frozenset((message.stream,)))

    async def messages(
        self, tenant: str, room: str, *, after: Bound = None, before: Bound = None, limit: int
    ) -> list[Record]:
        values = (tenant, room, after or 0, _BEYOND if before is None else before, limit)
        rows = await self._links.fetch(NEWEST if after is None else AFTER, *values)
        return [Record(*row) for row in (reversed(rows) if after is None else rows)]

    async def message(self, tenant: str, room: str, seq: int) -> Record | None:
        rows = await self._links.fetch(MESSAGE, tenant, room, seq)
        return Record(*rows[0]) if rows else None

    async def message_by_key(self, tenant: str, room: str, user: str, key: str) -> Record | None:
        rows = await self._links.fetch(KNOWN, [tenant], [room], [user], [key])
        return Record(*rows[0][2:]) if rows else None


async def write(link: Link, batch: Sequence[Message], hooked: Collection[str] = ()) -> list[Written | Exception | None]:
    """Lock the heads, read the keys in a statement that sees earlier commits, and number the new messages.

    New messages of `hooked` tenants are queued for their webhooks.
    """
    rooms = await link.fetch(LOCK, *columns(sorted({message.stream for message in batch}), 2))
    heads: dict[Key, int] = {(row[0], row[1]): row[2] for row in rooms}
    facts: dict[Key, tuple[int, BusMode]] = {(row[0], row[1]): (row[3], row[4]) for row in rooms}
    checks = _Checks(rooms)
    known = await checks.load(link, batch)
    reactions = ReactionWrites()
    await reactions.load(link, [(message.stream, message.draft) for message in batch if message.stream in heads])
    written: list[Written | Exception | None] = []
    new: list[tuple[Any, ...]] = []
    for message in batch:
        tenant, room, d, message_id, _ = message
        if (tenant, room) not in heads:
            written.append(None)
            continue
        ident = tenant, room, d.user, d.key
        record = known.get(ident)
        try:
            if record is None:
                checks.check(message)
                record = reactions.decided_by((tenant, room), d)
        except GreendotError as refused:  # for this call only: the other messages of the batch are written
            written.append(refused)
            continue
        if record is None:
            seq = heads[tenant, room] = heads[tenant, room] + 1
            said = (d.at, d.ref, d.op, d.traceparent)
            record = known[ident] = Record(room, seq, message_id, d.user, d.name, d.body, *said)
            reactions.write((tenant, room), d, record)
            checks.sent(message)
            new.append((tenant, room, seq, message_id, d.user, d.name, d.body, d.key, *said))
        written.append(Written(record, record.id == message_id, *facts[tenant, room]))
    await reactions.save(link)
    await checks.save(link)
    if new:
        changed = {(row[0], row[1]) for row in new}
        values = (*columns([(*key, heads[key]) for key in changed], 3), *columns(new, 12))
        if any(row[0] in hooked for row in new):
            await link.execute(WRITE_HOOKED, *values, [*hooked])
        else:
            await link.execute(WRITE, *values)
    return written


class _Checks:
    """Facts that decide whether the rooms of a batch take its messages. `rooms` are the locked rows of the rooms."""

    def __init__(self, rooms: Sequence[Sequence[Any]]) -> None:
        self._members_rev: dict[Key, int] = {(row[0], row[1]): row[3] for row in rooms}
        self._archived = {(row[0], row[1]) for row in rooms if row[5]}
        self._slow: dict[Key, int] = {(row[0], row[1]): row[6] for row in rooms if row[6]}
        self._changeable: set[tuple[Any, ...]] = set()
        self._restricted: dict[Key, list[tuple[str, int]]] = {}  # by tenant and user: kind and end
        self._sends: dict[tuple[str, str, str], int] = {}  # time of the last message in slow mode
        self._new_sends: set[tuple[str, str, str]] = set()

    async def load(self, link: Link, batch: Sequence[Message]) -> dict[_Ident, Record]:
        """Read the facts, in statements that see earlier commits; return the records that exist already."""
        asked = {(tenant, room, d.ref) for tenant, room, d, _, _ in batch if d.ref is not None}
        if asked:
            self._changeable = {tuple(row) for row in await link.fetch(CHANGEABLE, *columns(sorted(asked), 3))}
        paced = {message.sender for message in batch if message.draft.paced and message.stream in self._slow}
        if paced:
            self._sends = {tuple(row[:3]): row[3] for row in await link.fetch(SENDS, *columns(sorted(paced), 3))}
        idents = {message.ident for message in batch if message.stream in self._members_rev}
        if not idents:
            return {}
        authors = {(message.tenant, message.draft.user) for message in batch if message.draft.members_rev is not None}
        found = await link.fetch(KNOWN_OR_RESTRICTED, *columns(sorted(idents), 4), *columns(sorted(authors), 2))
        for row in found:
            if not row[2]:
                self._restricted.setdefault((row[0], row[5]), []).append((row[1], row[3]))
        return {(row[0], row[2], row[5], row[1]): Record(*row[2:]) for row in found if row[2]}

    def check(self, message: Message) -> None:
        """Raise StaleMembers, RoomArchived, Restricted, SlowMode or NoSuchMessage if the message is not taken."""
        tenant, room, draft, _, moderated = message
        if draft.members_rev not in (None, self._members_rev[message.stream]):
            raise StaleMembers(room)
        if moderated:
            return
        if message.stream in self._archived:
            raise RoomArchived(room)
        if draft.members_rev is not None:
            for kind, until in sorted(self._restricted.get((tenant, draft.user), ())):
                if until > draft.at:
                    raise Restricted(kind, until)
        last = self._sends.get(message.sender) if draft.paced else None
        if last is not None and (wait_ms := pace(last, draft.at, self._slow.get(message.stream, 0))):
            raise SlowMode(room, wait_ms)
        if draft.ref is not None and (tenant, room, draft.ref) not in self._changeable:
            raise NoSuchMessage(room)

    def sent(self, message: Message) -> None:
        """Note a new message, which delays the next one in slow mode."""
        if message.draft.paced and message.stream in self._slow:
            self._sends[message.sender] = message.draft.at
            self._new_sends.add(message.sender)

    async def save(self, link: Link) -> None:
        if self._new_sends:
            rows = [(*sender, self._sends[sender]) for sender in sorted(self._new_sends)]
            await link.execute(_PUT_SENDS, *columns(rows, 4))


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    """Transpose rows into the arrays that `unnest` takes."""
    return [*zip(*rows, strict=True)] if rows else [()] * width


_: type[MessageStore] = PostgresMessages
