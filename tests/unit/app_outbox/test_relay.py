"""Relays of the app outbox: each committed row is sent once and in order, and rows that cannot be sent block no
others."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from unittest.mock import patch

import asyncpg
import pytest

from greendot.app_outbox import relay as relaying
from greendot.app_outbox.relay import BATCH, Relay
from greendot.clock import SystemClock
from greendot.errors import StoreUnavailable
from greendot.protocol.codec import MAX_FRAME
from greendot.store.app_outbox import SHARDS, Outbox, OutboxRow, OutboxSession
from greendot.store.inbox import Notice
from greendot.store.postgres import PostgresOutbox, PostgresStore
from greendot.store.postgres import app_outbox as outbox
from greendot.store.rooms import Draft
from postgres_server import fresh_schema, postgres_server

from .sites import SAY, TELL, Site, Straight, T, at, site, until

# --- the app's transactions ---


async def test_what_is_committed_is_sent_and_what_is_rolled_back_is_not(postgres: str) -> None:
    async with site(postgres) as app, app.relay() as relay:
        transaction = app.app.transaction()
        await transaction.start()
        await app.say("r1", '"never"')
        await app.tell("ann", '"never"')
        await transaction.rollback()
        async with app.app.transaction():
            await app.say("r1", '{"text": "hello"}')
            await app.tell("ann", '{"order": 17}')
            await app.tell("ann", '{"order": 18}')
        await app.sent()
        assert await app.said("r1") == ['{"text":"hello"}']
        assert await app.told("ann") == ['{"order":17}', '{"order":18}']
        assert sorted(app.straight.told) == [
            ("ann", '{"order":17}'),
            ("ann", '{"order":18}'),
            ("r1", '{"text":"hello"}'),
        ]
        await until(lambda: relay.items()["outbox_relayed_total"] == 3)


async def test_rows_with_the_same_key_are_one(postgres: str) -> None:
    async with site(postgres) as app:
        for _ in range(3):
            await app.say("r1", "1", "once")
            await app.tell("ann", "1", "once")
        async with app.relay():
            await app.tell("ann", "2", "once")
            await app.sent()
        assert await app.said("r1") == ["1"]
        assert await app.told("ann") == ["1"]


async def test_a_row_that_expired_while_it_waited_is_not_sent(postgres: str) -> None:
    async with site(postgres) as app:
        await app.app.execute(
            "INSERT INTO greendot_outbox (target, user_id, kind, body, expires_at) VALUES"
            " ('notification', 'ann', 'k', '1', now() - interval '1 s'),"
            " ('notification', 'ann', 'k', '2', now() + interval '1 h')"
        )
        async with app.relay() as relay:
            await app.sent()
            assert relay.items()["outbox_expired_total"] == 1
        assert await app.told("ann") == ["2"]
        (kept,) = await app.store.notifications(T, "ann", limit=9)
        assert kept.expires_at is not None


async def test_the_options_of_a_push_reach_the_queue_and_wrong_ones_are_set_aside(postgres: str) -> None:
    async with site(postgres) as app:
        store = PostgresStore(app.url, pushed=[T])
        await store.start()
        try:
            await app.app.execute(
                "INSERT INTO greendot_outbox (target, user_id, room, kind, body, importance, collapse_key, push) VALUES"
                " ('notification', 'ann', 'r1', 'k', '1', 'critical', 'c1', NULL),"
                " ('notification', 'ann', NULL, 'k', '2', 'urgent', NULL, NULL),"
                " ('notification', 'ann', NULL, 'k', '3', NULL, NULL, false),"
                " ('notification', 'ann', NULL, 'k', '4', NULL, NULL, NULL)"
            )
            async with app.relay(Straight(store)):
                await app.sent()
            assert await app.told("ann") == ["1", "3", "4"]
            pushes = await store.claim_pushes("w", 2**52, 1_000, 10, since=0)
            assert [(push.seq, push.importance, push.collapse, push.room) for push in pushes] == [
                (1, "critical", "c1", "r1"),
                (3, "normal", None, None),
            ]
            status = await app.outbox.status(9)
            assert [row.error for row in status.poison] == [
                "importance 'urgent' must be one of low, normal, high, critical"
            ]
            await app.app.execute("UPDATE greendot_outbox SET importance = 'high'")
            await app.outbox.retry(None)
            async with app.relay(Straight(store)):
                await app.sent()
            (push,) = await store.claim_pushes("w", 2**52, 1_000, 10, since=0)
            assert (push.seq, push.importance) == (4, "high")
        finally:
            await store.close()


async def test_a_table_made_anew_begins_again_with_its_ids_and_nothing_is_taken_for_old(postgres: str) -> None:
    async with site(postgres) as app, app.relay():
        for body in ("1", "2"):
            await app.tell("ann", body)
            await app.sent()
            await app.app.execute("TRUNCATE greendot_outbox RESTART IDENTITY")
        assert await app.told("ann") == ["1", "2"]


async def test_the_outbox_may_be_in_another_database_than_the_records(postgres: str) -> None:
    async with site(postgres) as app, fresh_schema(postgres) as place:
        store = PostgresStore(place, migrate=True)
        await store.start()
        try:
            async with app.relay(Straight(store)):
                await app.tell("ann", "1")
                await app.sent()
            assert (await store.inbox(T, "ann")).head == 1
            assert (await app.store.inbox(T, "ann")).head == 0
        finally:
            await store.close()


# --- order ---


async def test_order_is_kept_by_two_relays_that_lose_their_sessions_while_commits_come_in_any_order(
    postgres: str,
) -> None:
    """Each stream has one writer. Its transactions commit long after others that took later ids."""
    async with site(postgres) as app, AsyncExitStack() as stack:
        random.seed(4)
        streams = [*(("message", f"r{n}") for n in (1, 2, 3)), *(("notification", f"u{n}") for n in range(9))]
        expected: dict[str, list[str]] = {name: [] for _, name in streams}
        other = PostgresStore(app.url)
        await other.start()
        stack.push_async_callback(other.close)
        tellers = Straight(app.store), Straight(other)
        relays = [await stack.enter_async_context(app.relay(teller)) for teller in tellers]

        async def shared() -> None:
            await until(lambda: [relay.counts.shards for relay in relays] == [SHARDS // 2] * 2)

        await shared()
        writing = [asyncio.ensure_future(write(app.url, target, name, expected[name])) for target, name in streams]
        while not all(task.done() for task in writing):
            await asyncio.wait(writing, timeout=0.1)
            await app.cut(1)
        await asyncio.gather(*writing)
        await app.sent()
        # By chance one relay may have sent all rows. That can recur while the other detects that its session was cut.
        while not all(relay.counts.relayed for relay in relays):
            await shared()
            await asyncio.gather(*(write(app.url, target, name, expected[name]) for target, name in streams))
            await app.sent()
        for target, name in streams:
            found = await (app.said(name) if target == "message" else app.told(name))
            assert found == expected[name], name
        told = tellers[0].told + tellers[1].told
        assert len(told) == sum(len(bodies) for bodies in expected.values())


async def write(url: str, target: str, name: str, committed: list[str]) -> None:
    """Commit transactions of several rows that stay open for a while. Roll some of them back."""
    link, number = await asyncpg.connect(url), 0
    try:
        for _ in range(25):
            transaction, bodies = link.transaction(), []
            await transaction.start()
            for _ in range(random.randrange(1, 5)):
                number += 1
                bodies.append(str(number))
                await link.execute(SAY if target == "message" else TELL, name, bodies[-1], None)
                await asyncio.sleep(random.expovariate(1 / 0.01))
            if random.random() < 0.2:
                await transaction.rollback()
            else:
                await transaction.commit()
                committed += bodies
    finally:
        await link.close()


async def test_a_backlog_of_many_batches_is_sent_in_order(postgres: str) -> None:
    async with site(postgres) as app:
        count = 2 * BATCH + 7
        await app.app.execute(
            "INSERT INTO greendot_outbox (target, user_id, kind, body) "
            "SELECT 'notification', 'u' || n % 3, 'k', to_jsonb(n) FROM generate_series(0, $1 - 1) n",
            3 * count,
        )
        async with app.relay():
            await app.sent()
        for user in range(3):
            assert await app.told(f"u{user}") == [str(n) for n in range(user, 3 * count, 3)]


# --- counting ---

NEVER_COUNTED = "SELECT $2::bigint FROM pg_sleep(600) WHERE cardinality($1::int[]) > 0"


async def test_a_backlog_is_sent_before_anything_is_counted(postgres: str) -> None:
    """Otherwise a backlog that takes too long to count ends every session before its first row is sent."""
    async with site(postgres) as app:
        await app.tell("ann", "1")
        with patch.object(outbox, "COUNT", NEVER_COUNTED), patch.object(outbox, "COUNT_LIMIT_S", 600):
            async with app.relay():
                await app.sent()
        assert await app.told("ann") == ["1"]


async def test_a_count_that_takes_too_long_leaves_the_session_as_it_was(postgres: str) -> None:
    async with site(postgres) as app, app.outbox.session(lambda: None) as session:
        mine = await session.claim(())
        await app.tell("ann", "1")
        with patch.object(outbox, "COUNT", NEVER_COUNTED), patch.object(outbox, "COUNT_LIMIT_S", 0.05):
            waiting, oldest_s = await session.depth(mine, 9)
        assert waiting is None
        assert 0 < oldest_s < 60, "the age of the oldest row is known although the count timed out"
        assert await session.claim(()) == mine
        assert (await session.depth(mine, 9))[0] == 1


async def test_what_could_not_be_counted_is_not_shown(postgres: str) -> None:
    async with site(postgres) as app:
        with (
            patch.object(relaying, "COUNT_S", 0.05),
            patch.object(outbox, "COUNT", NEVER_COUNTED),
            patch.object(outbox, "COUNT_LIMIT_S", 0.05),
        ):
            async with app.relay() as relay:
                await until(lambda: "outbox_queue_waiting" not in relay.items())
                await app.tell("ann", "1")
                await app.sent()
                assert relay.counts.up


async def test_what_waits_is_shown_and_counted_up_to_a_limit(postgres: str) -> None:
    async with site(postgres) as app:
        for number in range(5):
            await app.say("r1", str(number))
        await app.app.execute("UPDATE greendot_outbox SET created_at = now() - interval '90 s'")
        delivery = Locked(app.store)
        with patch.object(relaying, "COUNT_S", 0.05), patch.object(relaying, "MOST_COUNTED", 4):
            async with app.relay(delivery) as relay:
                await until(lambda: relay.items().get("outbox_queue_waiting") == 4)
                assert 90 <= relay.items()["outbox_queue_oldest_s"] < 150
                delivery.locked = False
                await until(lambda: relay.items().get("outbox_queue_waiting") == 0)
                assert relay.items()["outbox_queue_oldest_s"] == 0


# --- crashes ---


class CutOff(Straight):
    """Publisher that loses the relay's session after the write and before the rows are removed."""

    def __init__(self, app: Site) -> None:
        super().__init__(app.store)
        self.app = app
        self.cuts = 3

    async def notify(self, notices: Sequence[Notice]) -> None:
        await super().notify(notices)
        if self.cuts:
            self.cuts -= 1
            await self.app.cut()


async def test_who_dies_between_writing_and_removing_makes_nothing_twice(postgres: str) -> None:
    async with site(postgres) as app:
        for number in range(20):
            await app.tell("ann", str(number))
        delivery = CutOff(app)
        async with app.relay(delivery) as relay:
            await app.sent()
            assert relay.counts.up
        assert delivery.cuts == 0
        assert await app.told("ann") == [str(n) for n in range(20)]
        assert delivery.told == [("ann", str(n)) for n in range(20)]


async def test_a_relay_heals_when_postgres_is_restarted() -> None:
    with postgres_server() as server:
        async with at(server.url) as app, app.relay(poll_s=0.1) as relay:
            await app.tell("ann", "1")
            await app.sent()
            for number, how in enumerate((signal.SIGQUIT, signal.SIGINT), 2):
                server.end(how)
                server.launch()
                await asyncio.to_thread(server.ready)
                app.app.terminate()
                app.app = await asyncpg.connect(server.url)
                await app.tell("ann", str(number))
                await app.sent()
            assert await app.told("ann") == ["1", "2", "3"]
            await until(lambda: relay.counts.up)


# --- rows that cannot be sent ---


async def test_a_row_that_can_never_be_sent_is_set_aside_and_the_rest_of_its_stream_goes_on(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(postgres) as app, app.relay() as relay:
        await app.say("nowhere", "1")
        await app.tell("two words", "1")
        async with app.app.transaction():
            await app.tell("ann", "1")
            await app.tell("ann", f'"{"x" * MAX_FRAME}"')
            await app.tell("ann", "2", key="not a key")
            await app.tell("ann", "3")
            await app.app.execute(
                "INSERT INTO greendot_outbox (target, user_id, kind, body, created_at) "
                "SELECT 'notification', 'ann', 'k', '4', unnest(ARRAY['infinity'::timestamptz, '4000-01-01 BC'])"
            )
            await app.tell("ann", "6")
        await app.sent()
        assert await app.told("ann") == ["1", "3", "6"]
        await until(lambda: relay.items()["outbox_set_aside_total"] == 6)
        status = await app.outbox.status(100)
        assert (status.waiting, status.set_aside, status.oldest_at) == (0, 6, None)
        errors = {poison.id: poison.error or "" for poison in status.poison}
        assert errors[1] == "there is no room 'nowhere'"
        assert errors[2].startswith("user_id 'two words' is not a valid id")
        assert errors[4] == f"body may have at most {MAX_FRAME} bytes, and has {MAX_FRAME + 2}"
        assert "row 1 of the app outbox cannot be sent and was set aside: there is no room 'nowhere'" in caplog.text
        assert {poison.attempts for poison in status.poison} == {1}

        await app.store.put_room(T, "nowhere", open=True)
        assert await app.outbox.retry([1, 3, 999]) == [1]
        await app.sent()
        assert await app.said("nowhere") == ["1"]
        assert len(await app.outbox.retry(None)) == 5
        await app.sent()
        await until(lambda: relay.items()["outbox_set_aside_total"] == 11)
        assert {poison.attempts for poison in (await app.outbox.status(100)).poison} == {2}


class Picky(Straight):
    """Publisher that fails for some notifications."""

    async def notify(self, notices: Sequence[Notice]) -> None:
        if any(notice.body == b'"bug"' for notice in notices):
            raise ZeroDivisionError("oops")
        await super().notify(notices)


async def test_one_among_many_that_fails_is_found_and_set_aside_alone(postgres: str) -> None:
    async with site(postgres) as app:
        for number in range(30):
            await app.tell("ann", '"bug"' if number == 11 else str(number))
        async with app.relay(Picky(app.store)):
            await app.sent()
        assert await app.told("ann") == [str(n) for n in range(30) if n != 11]
        (poison,) = (await app.outbox.status(10)).poison
        assert poison.error == "ZeroDivisionError: oops"


class Locked(Straight):
    """Publisher that cannot write to one room for a while."""

    locked = True

    async def append(self, tenant: str, room: str, draft: Draft) -> None:
        if self.locked and room == "r1":
            raise StoreUnavailable("locked")
        await super().append(tenant, room, draft)


async def test_rows_that_cannot_be_sent_yet_wait_in_order_and_do_not_delay_others(postgres: str) -> None:
    async with site(postgres) as app:
        for number in range(10):
            await app.say("r1", str(number))
            await app.say("r2", str(number))
            await app.tell("ann", str(number))
        delivery = Locked(app.store)
        async with app.relay(delivery) as relay:
            await until(lambda: relay.counts.relayed == 20)
            assert await app.left() == 10
            assert await app.said("r1") == []
            delivery.locked = False
            await app.sent()
        assert await app.said("r1") == await app.said("r2") == await app.told("ann") == [str(n) for n in range(10)]
        assert (await app.outbox.status(10)).set_aside == 0


class Shaky(Straight):
    """Publisher whose writes fail at random."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self.dice = random.Random(4)

    async def append(self, tenant: str, room: str, draft: Draft) -> None:
        self.shake()
        await super().append(tenant, room, draft)

    async def notify(self, notices: Sequence[Notice]) -> None:
        self.shake()
        await super().notify(notices)

    def shake(self) -> None:
        if self.dice.random() < 0.2:
            raise StoreUnavailable("away for a moment")


async def test_nothing_overtakes_what_failed_for_a_moment(postgres: str) -> None:
    async with site(postgres) as app:
        for number in range(40):
            await app.say("r1", str(number))
            await app.tell("ann", str(number))
        async with app.relay(Shaky(app.store), poll_s=0.02):
            await app.sent()
        assert await app.said("r1") == await app.told("ann") == [str(n) for n in range(40)]


# --- waking ---


@pytest.mark.timing
async def test_a_commit_wakes_the_relay_at_once(postgres: str) -> None:
    async with site(postgres) as app, app.relay(poll_s=60) as relay:
        await until(lambda: relay.counts.shards == SHARDS)
        took = []
        for number in range(20):
            start = time.monotonic()
            await app.tell("ann", str(number))
            await until(lambda number=number: len(app.straight.told) > number)
            took.append(time.monotonic() - start)
        assert sorted(took)[10] < 0.5
        assert max(took) < 30  # half of `poll_s`


class LateOutbox(PostgresOutbox):
    """Outbox that gets a row just after a lane has found none. The notification of the row arrives while the lane
    ends."""

    def __init__(self, app: Site) -> None:
        super().__init__(app.url, 60)
        self.app = app
        self.late = False

    @asynccontextmanager
    async def session(self, wake: Callable[[], None]) -> AsyncIterator[OutboxSession]:
        async with super().session(wake) as session:
            yield LateSession(session, self)


class LateSession:
    def __init__(self, session: OutboxSession, outbox: LateOutbox) -> None:
        self.session = session
        self.outbox = outbox
        self.claim, self.settle, self.depth = session.claim, session.settle, session.depth
        self.looks = 0

    async def waiting(self, shards: Collection[int]) -> list[int]:
        self.looks += 1
        return await self.session.waiting(shards)

    async def take(self, shard: int, limit: int) -> list[OutboxRow]:
        rows = await self.session.take(shard, limit)
        if not rows and not self.outbox.late:
            self.outbox.late = True
            looks = self.looks
            await self.outbox.app.tell("ann", "2")
            await until(lambda: self.looks > looks)
        return rows


async def test_a_row_that_comes_while_a_lane_ends_is_sent_at_once(postgres: str) -> None:
    async with site(postgres) as app:
        relay = Relay(LateOutbox(app), app.straight, SystemClock(), 60)
        relay.start()
        try:
            await until(lambda: relay.counts.shards == SHARDS)
            await app.tell("ann", "1")
            await until(lambda: app.straight.told == [("ann", "1"), ("ann", "2")])
        finally:
            await relay.close()


async def test_rows_without_a_trigger_are_found_by_polling(postgres: str) -> None:
    async with site(postgres) as app:
        await app.app.execute("DROP TRIGGER greendot_outbox_tell ON greendot_outbox")
        async with app.relay() as relay:
            await until(lambda: relay.counts.shards == SHARDS)
            await app.tell("ann", "1")
            await app.sent()


async def test_an_outbox_that_is_not_there_is_waited_for(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    async with site(postgres) as app:
        await app.app.execute("DROP TABLE greendot_outbox")
        async with app.relay() as relay:
            await until(lambda: "run `greendot outbox install" in caplog.text)
            assert not relay.counts.up
            assert relay.items()["outbox_relay_up"] == 0
            await app.outbox.install()
            await app.tell("ann", "1")
            await app.sent()
            assert await app.told("ann") == ["1"]


# --- sharing ---


async def test_relays_share_the_shards_and_take_over_those_of_one_that_ends(postgres: str) -> None:
    async with site(postgres) as app, app.relay() as one:
        await until(lambda: one.counts.shards == SHARDS)
        async with app.relay() as two, app.relay() as three:

            def all_are_shared() -> bool:
                held = [relay.counts.shards for relay in (one, two, three)]
                return sum(held) == SHARDS and max(held) <= 6

            await until(all_are_shared)
        await until(lambda: one.counts.shards == SHARDS)


async def test_two_outboxes_in_one_database_do_not_share(postgres: str) -> None:
    async with site(postgres) as app, site(postgres) as other, app.relay() as one, other.relay() as two:
        await until(lambda: one.counts.shards == two.counts.shards == SHARDS)


@pytest.mark.parametrize("last", [(), ("BEGIN",), ("PREPARE",), ("BEGIN", "PREPARE")])
async def test_a_relay_that_stands_still_loses_its_shards(postgres: str, last: Sequence[str]) -> None:
    """The relay's process is stopped, or its machine is cut off, while its connection seems to be open.

    `last` is what the relay did last. asyncpg prepares a new statement in one message, and executes it in the next.
    """
    async with site(postgres) as app:
        with patch.object(outbox, "SILENT_S", 0.5):
            still: Outbox = PostgresOutbox(app.url, 0.1)
            other = Relay(PostgresOutbox(app.url, 0.1), app.straight, SystemClock(), 0.1)
        try:
            async with still.session(lambda: None) as session:
                assert len(await session.claim(())) == SHARDS
                for step in last:
                    await (session._link.prepare("SELECT 2") if step == "PREPARE" else session._link.execute(step))
                other.start()
                try:
                    await until(lambda: other.counts.shards == SHARDS)
                finally:
                    await other.close()
                with pytest.raises(StoreUnavailable):
                    await session.claim(())
        except StoreUnavailable:
            pytest.fail("closing a session that is already closed must not fail")


async def test_a_relay_that_is_closed_leaves_nothing_behind(postgres: str) -> None:
    async with site(postgres) as app:
        relay = Relay(app.outbox, app.straight, SystemClock())
        await relay.close()
        relay = Relay(app.outbox, app.straight, SystemClock())
        relay.start()
        await relay.close()
        held = "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE a.application_name = $1"
        await until(lambda: none(app, held))


async def none(app: Site, sql: str) -> bool:
    return int(await app.app.fetchval(sql, "greendot-outbox")) == 0
