"""Lua verbs called directly on stored records, for cases that the engine suites reach only by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import pytest

from greendot.engine.redis import keys
from greendot.engine.redis.scripts import SCRIPTS
from redis_servers import KINDS, RedisProcess

DAY_MS = 86_400_000
ROOM = ["room", "nodes", "index"]


class Partition:
    """The keys of one partition, with a bucket of each kind."""

    def __init__(self, process: RedisProcess) -> None:
        self.process = process
        process.command("FLUSHALL")

    def __call__(self, *arguments: Any) -> Any:
        return self.process.command(*arguments)

    @property
    def now(self) -> int:
        seconds, micros = self("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def node(self, name: str, ends: int | None = None, renewed: int = 1) -> None:
        """Add a live node, or a dead one whose sessions count until `ends`."""
        self("HSET", "nodes", name, "live" if ends is None else f"{renewed:x},{ends:x}")

    def verb(self, name: str, keys: list[str], *arguments: Any) -> Any:
        answer = self("EVAL", SCRIPTS[name].source, len(keys), *keys, *arguments)
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer

    def of_user(self, name: str, user: str, *arguments: Any, time: Any = "") -> Any:
        return self.verb(name, ["bucket", "nodes", "seen"], time, user, "channel", "PUBLISH", "key", 128, *arguments)

    def reap(self, retention: Any = "", *incarnations: str) -> tuple[int, int, int, set[bytes]]:
        keys = ["bucket", "nodes", "seen"]
        ended, gone, forgotten, going = self.verb(
            "reap", keys, "", "PUBLISH", "key", "channel:", 128, retention, *incarnations
        )
        return ended, gone, forgotten, {*going}

    def user(self, name: str, *entries: str, version: int = 5, heard: str = "") -> None:
        """Add a user who is online with these sessions."""
        self("HSET", "bucket", name, f"o{version:x}||Ann|a|{heard}|{';'.join(entries)}")

    def record(self, user: str) -> str | None:
        text = self("HGET", "bucket", user)
        return text if text is None else text.decode()

    def seen(self, user: str) -> str | None:
        text = self("HGET", "seen", user)
        return text if text is None else text.decode()


@pytest.fixture(scope="module", params=KINDS)
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(request.param, tmp_path_factory.mktemp(request.param)) as process:
        yield process


@pytest.fixture
def redis(process: RedisProcess) -> Partition:
    return Partition(process)


# --- records ---


def test_one_face_is_kept_while_both_agree(redis: Partition) -> None:
    redis.node("n1")
    redis.of_user("touch", "ann", "n1-s1", "n1", 1, "default", "a", "Ann")
    redis.of_user("status", "ann", "", 1, "", "")
    record = redis.record("ann")
    assert record is not None
    visible, own, name, manual, heard, entries = record.split("|")
    assert (visible[0], own, name, manual, heard, entries) == ("o", "", "Ann", "a,1", "", "n1-s1")


def test_a_verb_of_quite_another_time_is_refused_and_changes_nothing(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", "n1-s1")
    for off_ms in (-6_000, 6_000):
        with pytest.raises(hiredis.ReplyError, match="CLOCK"):
            redis.of_user("linger", "ann", "n1-s1", "n1", 1, 0, 0, time=redis.now + off_ms)
    assert redis.record("ann") == "o5||Ann|a||n1-s1"
    assert redis.of_user("linger", "ann", "n1-s1", "n1", 1, 1_000, 0, time=redis.now + 2_000) == 1_000


def test_buckets_do_not_stay_for_ever(redis: Partition) -> None:
    redis.node("n1")
    redis.of_user("touch", "ann", "n1-s1", "n1", 1, "default", "a", "Ann")
    assert DAY_MS - 60_000 < redis("PTTL", "bucket") <= DAY_MS


# --- expired sessions ---


def test_a_linger_that_is_over_is_neither_prolonged_nor_adopted(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", f"n1-s1,,,,{redis.now - 10:x},9")
    assert redis.of_user("linger", "ann", "n1-s1", "n1", 1, 1_000, 0) == [b"!", 0, -1]
    assert redis.record("ann") is None
    redis.user("ann", f"n1-s1,,,,{redis.now - 10:x},9")
    assert redis.of_user("adopt", "ann", "n1-s9", "n1", 1, "n1-s1") == [b"!", 0, []]
    assert redis.record("ann") is None


def test_a_session_whose_linger_is_over_begins_anew(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", f"n1-s1,,,,{redis.now - 10:x},9")
    assert redis.of_user("touch", "ann", "n1-s1", "n1", 2, "default", "", "") == [0, 1]


def test_a_late_word_of_an_older_connection_ends_no_linger(redis: Partition) -> None:
    redis.node("n1")
    lingers = f"n1-s2,,,,{redis.now + 60_000:x},9"
    redis.user("ann", "n1-s1,,2", lingers)
    assert redis.of_user("touch", "ann", "n1-s1", "n1", 1, "default", "", "") == [1, 1]
    record = redis.record("ann")
    assert record is not None
    assert record.endswith(f"|n1-s1,,2;{lingers}")
    redis.of_user("touch", "ann", "n1-s1", "n1", 3, "default", "", "")
    record = redis.record("ann")
    assert record is not None
    assert record.endswith("|n1-s1,,3")


# --- rooms ---


def test_only_those_of_nodes_known_to_be_dead_are_taken_out_of_a_room(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    for user, entry in (("ann", "n1-s1"), ("bob", "n2-s1"), ("eve", "n3-s1"), ("zoe", "x-s1,n2")):
        redis("HSET", "room", user, entry)
    found = redis.verb("present", ROOM, "", "channel", "PUBLISH", "key", 0, 100)
    assert found == [b"0", b"ann"]
    assert {*redis("HKEYS", "room")} == {b"ann", b"eve"}


def test_the_index_ends_when_the_hash_is_read_because_not_all_nodes_write_it(redis: Partition) -> None:
    redis.node("n1")
    users = fill(redis, 600)
    redis("ZADD", "index", 0, "u0001", 0, "~n1")
    cursor, found = b"0", set[bytes]()
    while not found or cursor != b"0":
        cursor, *some = redis.verb("present", ROOM, "", "channel", "PUBLISH", "key", cursor, 100)
        found.update(some)
    assert found == {*users}
    assert redis("EXISTS", "index") == 0


def test_a_small_room_is_read_whole_and_users_of_dead_nodes_are_removed(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    for user, entry in (("ann", "n1-s1"), ("bob", "n2-s1"), ("eve", "n3-s1"), ("zoe", "x-s1,n1")):
        redis("HSET", "room", user, entry)
    kind, *users = redis.verb("occupants", ROOM, "", "", "", "", "", 0, "")
    assert (kind, {*users}) == (b"all", {b"ann", b"zoe"})
    assert {*redis("HKEYS", "room")} == {b"ann", b"eve", b"zoe"}


def fill(redis: Partition, count: int, node: str = "n1") -> list[bytes]:
    users = [f"u{number:04}" for number in range(count)]
    redis("HSET", "room", *(part for user in users for part in (user, f"{node}-{user}")))
    return [user.encode() for user in users]


def test_the_index_of_a_large_room_is_built_in_steps_while_users_enter_and_leave(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2")
    redis("HSET", "nodes", "~n1", 1, "~n2", 1)
    users = fill(redis, 1_200)
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [b"build"]
    call = ("", "channel", "PUBLISH", "key")
    cursor = redis.verb("index", ROOM, *call, 0, 100, "t1")
    assert cursor != b"0"
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [b"build"]
    for verb, user, more in (("enter", "anew", ("1", "")), ("exit", "u0007", ())):
        redis.verb(verb, ROOM, *call, f"n1-{user}" if verb == "exit" else "n2-x", "n2", 1, user, *more)
    redis.verb("index", ROOM, *call, 0, 100, "t2")  # another node, which dies
    while cursor != b"0":
        cursor = redis.verb("index", ROOM, *call, cursor, 100, "t1")
    users = sorted([*users, b"anew"])
    users.remove(b"u0007")
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 2_000, "") == [1_200, 0, *users]
    assert redis("ZRANGEBYLEX", "index", "[~", "+") == [b"~n1", b"~n2"]
    assert DAY_MS - 60_000 < redis("PTTL", "index") <= DAY_MS


def test_a_build_ends_if_the_index_has_ended_meanwhile(redis: Partition) -> None:
    redis.node("n1")
    fill(redis, 1_200)
    call = ("", "channel", "PUBLISH", "key")
    cursor = redis.verb("index", ROOM, *call, 0, 100, "t1")
    redis("DEL", "index")
    redis.verb("index", ROOM, *call, 0, 100, "t2")
    assert redis.verb("index", ROOM, *call, cursor, 100, "t1") == b"0"
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "")[0] in (b"build", b"old")


def test_a_build_that_leaves_a_small_room_makes_no_index(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    redis("HSET", "nodes", "~n1", 1, "~n2", 1)
    fill(redis, 1_200, "n2")
    redis("HSET", "room", "ann", "n1-s1")
    call, cursor = ("", "channel", "PUBLISH", "key"), b"0"
    redis("ZADD", "index", 0, "u0003", 0, "u1000")
    while (cursor := redis.verb("index", ROOM, *call, cursor, 100, "t1")) != b"0":
        pass
    assert redis("EXISTS", "index") == 0
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 9, "") == [b"all", b"ann"]


def test_the_index_ends_when_the_room_is_small_again(redis: Partition) -> None:
    redis.node("n1")
    redis("HSET", "nodes", "~n1", 1)
    fill(redis, 500)
    redis("ZADD", "index", *(part for number in range(500) for part in (0, f"u{number:04}")), 0, "~n1")
    call = ("", "channel", "PUBLISH", "key")
    redis.verb("exit", ROOM, *call, "n1-x", "n1", 1, "nobody")
    assert redis("EXISTS", "index") == 1
    redis.verb("exit", ROOM, *call, "n1-u0001", "n1", 1, "u0001")
    assert redis("EXISTS", "index") == 0
    redis.verb("enter", ROOM, *call, "n1-u0001", "n1", 1, "u0001", "1", "")
    assert redis("EXISTS", "index") == 0


def test_the_last_user_of_a_dead_node_empties_the_room(redis: Partition) -> None:
    redis.node("n2", ends=5)
    redis("HSET", "room", "bob", "n2-s1")
    redis("ZADD", "index", 0, "bob", 0, "~n2")
    assert redis.verb("present", ROOM, "", "channel", "PUBLISH", "key", 0, 100) == [b"!", 0, [b"0"]]
    assert redis("EXISTS", "room", "index") == 0


def test_a_page_is_read_from_the_index_unless_a_node_does_not_write_it(redis: Partition) -> None:
    redis.node("n1")
    redis("HSET", "nodes", "~n1", 1)
    redis("ZADD", "index", 0, "ann", 0, "bob", 0, "eve", 0, "~n1")
    assert redis.verb("occupants", ROOM, "", "", "", "", "ann", 1, "eve") == [3, 1, b"bob"]
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 9, "x") == [3, 0, b"ann", b"bob", b"eve"]
    redis.node("n0", ends=5)  # dead
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [3, 0]
    redis.node("n0", ends=redis.now + 60_000)  # in its grace
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [b"old"]
    redis.node("n0")
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [b"old"]
    redis("HSET", "nodes", "~n0", 1)
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 0, "") == [3, 0]


def test_the_users_of_dead_nodes_are_removed_from_the_index_some_at_a_time(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    redis("HSET", "nodes", "~n1", 1, "~n2", 1)
    users = fill(redis, 600)
    there = {"ann": "n1-s1", "bob": "n2-s1", "cid": "n2-s2;n1-s3", "dan": "n3-s1", "eve": "n2-s4"}
    for user, entry in there.items():
        redis("HSET", "room", user, entry)
        redis("ZADD", "index", 0, user)
    redis("ZADD", "index", *(part for user in users for part in (0, user)))
    redis("ZADD", "index", 0, "~n1", 0, "~n2", 0, "~n3")
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 9, "") == [b"dead", b"~n2", b"~n3"]
    prune = ["prune", ROOM, "", "channel", "PUBLISH", "key"]
    assert redis.verb(*prune, "", 3, "~n2", "~n3") == b"cid"
    assert redis("ZRANGE", "index", 0, -1) == [b"ann", b"cid", b"dan", b"eve", *users, b"~n1", b"~n2", b"~n3"]
    assert redis.verb(*prune, "cid", 700, "~n2", "~n3") == b""
    assert redis("ZRANGE", "index", 0, -1) == [b"ann", b"cid", *users, b"~n1"]
    assert {*redis("HKEYS", "room")} == {b"ann", b"cid", b"dan", *users}, "the unknown node may return"
    assert redis.verb("occupants", ROOM, "", "", "", "", "", 3, "") == [602, 0, b"ann", b"cid", users[0]]


def test_a_user_whose_other_session_is_on_a_node_without_the_index_leaves_the_index(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n0")
    redis("HSET", "nodes", "~n1", 1)
    redis("HSET", "room", "ann", "n0-s1", "bob", "n1-s9")
    redis("ZADD", "index", 0, "bob", 0, "~n1")
    session = ("n1-s1", "n1", 1, "ann")
    assert redis.verb("enter", ROOM, "", "channel", "PUBLISH", "key", *session, "1", "") == 0
    assert redis("ZRANGE", "index", 0, -1) == [b"ann", b"bob", b"~n1"]
    assert redis.verb("exit", ROOM, "", "channel", "PUBLISH", "key", *session) == 0
    assert redis("ZRANGE", "index", 0, -1) == [b"bob", b"~n1"]
    assert redis("HGET", "room", "ann") == b"n0-s1"


def test_a_session_that_enters_an_indexed_room_adds_the_user_and_the_mark_of_its_node(redis: Partition) -> None:
    redis.node("n1")
    redis("HSET", "room", "bob", "n2-s1")
    redis("ZADD", "index", 0, "bob", 0, "~n2")
    redis.verb("enter", ROOM, "", "channel", "PUBLISH", "key", "n1-s1", "n1", 1, "ann", "1", "")
    assert redis("ZRANGE", "index", 0, -1) == [b"ann", b"bob", b"~n1", b"~n2"]


def test_a_registered_node_writes_the_index_and_a_forgotten_one_leaves_nothing(redis: Partition) -> None:
    redis.verb("register", ["nodes"], "n1", "e1", "1", 1)
    assert redis("HMGET", "nodes", "n1", "~n1") == [b"live", b"1"]
    redis.node("n1", ends=5)
    assert redis.verb("forget", ["nodes"], "n1") == 1
    assert redis("HKEYS", "nodes") == [b"~epoch", b"~buckets"]


def test_a_session_that_enters_twice_is_there_once(redis: Partition) -> None:
    redis.node("n1")
    enter = ["", "channel", "PUBLISH", "key", "n1-s1", "n1", 1, "ann", "1", ""]
    assert redis.verb("enter", ROOM, *enter) == [b"!", 1, 1]
    assert redis.verb("enter", ROOM, *enter) == 0
    assert redis("HGET", "room", "ann") == b"n1-s1"


# --- reap ---


def test_users_of_a_dead_node_are_taken_out_together(redis: Partition) -> None:
    redis.node("n1", ends=5, renewed=4)
    later = redis.now + 60_000
    redis.user("ann", "n1-s1", heard="3")
    redis.user("bob", "n1-s2", version=later)
    redis.user("eve", "n2-s3,,,,,,n1")
    assert redis.reap() == (3, 3, 0, {b"ann", b"bob", b"eve"})
    assert redis("HLEN", "bucket") == 0
    seen = {user: redis.seen(user) for user in ("ann", "bob", "eve")}
    assert all(text is not None and text.startswith("f") and text.endswith("|Ann") for text in seen.values())
    assert str(seen["ann"]).partition("|")[0].split(",")[2] == "4"  # the node's renewal, later than the record's 3
    assert str(seen["bob"]).startswith(f"f{later + 1:x},")  # later than the published version


def test_of_a_user_with_a_device_elsewhere_only_the_session_ends(redis: Partition) -> None:
    redis.node("n1", ends=5)
    redis.node("n2")
    redis.user("ann", "n1-s1", "n2-s2")
    assert redis.reap() == (1, 0, 0, set())
    record = redis.record("ann")
    assert record is not None
    assert record.endswith("|n2-s2")


def test_a_session_that_went_to_another_node_ends_with_that_one(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    redis.user("ann", "n1-s1,,,,,,n2", "n1-s2")
    assert redis.reap()[0] == 1


def test_a_linger_is_ended_when_it_is_over_and_not_before(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", f"n1-s1,,,,{redis.now + 60_000:x},9")
    redis.user("bob", f"n1-s2,,,,{redis.now - 1:x},9")
    assert redis.reap() == (1, 1, 0, {b"bob"})


def test_only_records_that_name_an_incarnation_are_looked_at(redis: Partition) -> None:
    redis.node("n1", ends=5)
    redis.node("n2", ends=5)
    redis.user("ann", "n1-s1")
    redis.user("bob", "n2-s2")
    assert redis.reap("", "n2") == (1, 1, 0, {b"bob"})


def test_a_last_seen_is_forgotten_when_its_time_is_over(redis: Partition) -> None:
    redis("HSET", "seen", "ann", f"f{redis.now - 10_000:x}|Ann", "bob", f"f{redis.now:x}|Bob")
    assert redis.reap() == (0, 0, 0, set())
    assert redis.reap(5_000) == (0, 0, 1, set())
    assert redis("HKEYS", "seen") == [b"bob"]


# --- a tenant's users ---


def test_users_who_are_not_offline_are_counted_and_reading_stops_when_it_is_enough(redis: Partition) -> None:
    for bucket, user, visible in ((0, "t/ann", "o5"), (0, "t/bob", "f5"), (0, "u/eve", "o5"), (1, "t/zoe", "i5")):
        redis("HSET", f"bucket:{bucket:02x}", user, f"{visible}||x|a||n1-s1")
    online = ["nodes", "bucket:00"]
    assert redis.verb("online", online, "t/", 0, 100, 0) == [1, 0, 4, 2, 128]
    assert redis.verb("online", online, "t/", 0, 3, 0) == [0, 1, 3, 1, 1]
    assert redis.verb("online", online, "t/", 1, 100, 0) == [1, 0, 1, 1, 127]


def test_users_are_listed_from_the_bucket_with_a_number_on_however_many_buckets_there_are(redis: Partition) -> None:
    redis("HSET", "nodes", "~buckets", 3)  # 0 to 31, 32 to 63, 64 to 127
    for bucket, user in ((0, "t/ann"), (32, "t/bob"), (64, "t/eve")):
        redis("HSET", f"bucket:{bucket:02x}", user, "o5||x|a||n1-s1")
    online, ann, bob, eve = (
        ["nodes", "bucket:00"],
        *([f"t/{u}".encode(), b"o5||x|a||n1-s1"] for u in ("ann", "bob", "eve")),
    )
    assert redis.verb("online", online, "t/", 0, 100, 9) == [1, 0, 3, 3, 3, ann, bob, eve]
    assert redis.verb("online", online, "t/", 31, 1, 9) == [0, 32, 1, 1, 1, ann]
    assert redis.verb("online", online, "t/", 33, 1, 9) == [0, 64, 1, 1, 1, bob]
    assert redis.verb("online", online, "t/", 127, 1, 9) == [1, 0, 1, 1, 1, eve]


# --- nodes ---


def test_a_lease_is_renewed_when_it_is_time_by_a_node_that_lives(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)

    def count(*arguments: Any) -> list[int]:
        leases = redis.verb("look", ["nodes", "leases"], *arguments)[1]
        return [int(lease.split(b",")[0]) for lease in leases[1::2]]

    assert count("n1", "", 0, "") == []
    assert [count("n1", "1", 0, ""), count("n1", "1", 0, ""), count("n1", "", 0, "")] == [[1], [2], [2]]
    assert [count("n2", "1", 0, ""), count("n3", "1", 0, "")] == [[2], [2]]


def test_the_time_is_moved_once_by_those_who_saw_the_same(redis: Partition) -> None:
    assert redis.verb("correct", ["nodes"], "0", "500") == 1
    assert redis.verb("correct", ["nodes"], "0", "900") == 0
    assert redis("HGET", "nodes", "~clock") == b"500"
    assert redis.verb("correct", ["nodes"], "500", "700") == 1
    assert abs(redis.verb("beat", ["nodes"], "channel", "PUBLISH", "m")[1] - redis.now - 700) < 2_000


def test_a_beat_publishes_its_message_and_returns_epoch_and_time(redis: Partition) -> None:
    redis("HSET", "nodes", "~epoch", "e1")
    epoch, now, correction = redis.verb("beat", ["nodes"], "channel", "SET", "message")  # SET keeps the message
    assert (epoch, correction, redis("GET", "channel")) == (b"e1", b"0", b"message")
    assert abs(now - redis.now) < 2_000


def test_an_incarnation_comes_to_life_once_and_never_after_its_death(redis: Partition) -> None:
    assert redis.verb("register", ["nodes"], "n1", "e1", "1", 1)[0] == b"e1"
    assert redis.verb("register", ["nodes"], "n1", "e2", "", 1)[0] == b"e1"
    redis.node("n2", ends=5)
    for incarnation, new in (("n1", "1"), ("n2", ""), ("n2", "1")):
        with pytest.raises(hiredis.ReplyError, match="FENCED"):
            redis.verb("register", ["nodes"], incarnation, "e3", new, 1)


def test_only_a_partition_without_an_epoch_gets_the_number_of_buckets_of_the_first_node(redis: Partition) -> None:
    assert redis.verb("register", ["nodes"], "n1", "e1", "1", 128)[3] == 128
    assert redis.verb("register", ["nodes"], "n2", "e2", "1", 1)[3] == 128
    assert {*redis("HKEYS", "nodes")} == {b"n1", b"~n1", b"n2", b"~n2", b"~epoch"}
    redis("FLUSHALL")
    assert redis.verb("register", ["nodes"], "n1", "e1", "1", 1)[3] == 1
    assert redis.verb("register", ["nodes"], "n2", "e2", "1", 128)[3] == 1
    redis.node("n2", ends=5)
    redis.verb("forget", ["nodes"], "n2")
    assert {*redis("HKEYS", "nodes")} == {b"n1", b"~n1", b"~epoch", b"~buckets"}


def test_a_node_dies_once(redis: Partition) -> None:
    redis.node("n1")
    ends = redis.verb("bury", ["nodes"], "n1", 7, 1_000, redis.now)
    assert redis("HGET", "nodes", "n1") == f"7,{ends:x}".encode()
    assert abs(ends - redis.now - 1_000) < 1_000
    assert redis.verb("bury", ["nodes"], "n1", 9, 50_000, redis.now) == ends


def test_only_the_dead_are_struck_off_and_counted(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    assert redis.verb("forget", ["nodes"], "n1", "n2", "n3") == 1
    assert redis("HKEYS", "nodes") == [b"n1"]


def test_a_census_counts_users_and_sessions_until_it_is_enough(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", "n1-s1", "n1-s2")
    redis("HSET", "other", "bob", "o5||x|a||n1-s3", "eve", "o5||x|a||n1-s4")
    buckets = ["nodes", "bucket", "other", "none"]
    assert redis.verb("census", buckets, "n1", 100) == [b"live", 128, 3, 3, 4]
    assert redis.verb("census", buckets, "n9", 1) == [None, 128, 1, 1, 2]


def test_an_audit_names_the_sessions_of_one_node_and_their_connections(redis: Partition) -> None:
    redis.user("ann", "n1-s1,,7", "n2-s2,,,,,,n1", "n2-s3")
    found = redis.verb("audit", ["nodes", "bucket"], "n1", 128)
    assert found == [b"ann", b"n1-s1", 7, b"ann", b"n2-s2", 1]


def test_the_live_nodes_of_a_room_are_named_once(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    redis("HSET", "room", "ann", "n1-s1;n1-s2", "bob", "n2-s1;x-s2,n1", "eve", "n3-s1")
    assert redis.verb("room_nodes", ROOM, "", "", "", "") == [b"n1"]


def test_the_nodes_of_a_large_room_come_from_its_index(redis: Partition) -> None:
    redis.node("n1")
    redis.node("n2", ends=5)
    redis.node("n3")
    redis("HSET", "nodes", "~n1", 1, "~n2", 1, "~n3", 1)
    fill(redis, 1_001)
    assert {*redis.verb("room_nodes", ROOM, "", "", "", "")} == {b"n1", b"n3"}, "there is no index"
    redis("ZADD", "index", 0, "ann", 0, "bob", 0, "~n1", 0, "~n2")
    assert redis.verb("room_nodes", ROOM, "", "", "", "") == [b"n1"]
    redis.node("n0")  # a node that does not write the index may have sessions there
    assert {*redis.verb("room_nodes", ROOM, "", "", "", "")} == {b"n0", b"n1"}


def test_what_is_read_is_the_record_or_the_last_seen_and_the_epoch(redis: Partition) -> None:
    presence, seen, nodes = "presence.p:presence:{tag}:00", "presence.p:seen:{tag}:00", "presence.p:nodes:{tag}"
    redis("HSET", nodes, "~epoch", "e1")
    redis("HSET", presence, "ann", "o5||Ann|a||n1-s1")
    redis("HSET", seen, "bob", "f5|Bob")
    keys = [presence, seen] * 3 + [nodes]
    asked = ("ann", 128, "bob", 128, "eve", 128)
    assert redis.verb("read", keys, *asked) == [b"o5||Ann|a||n1-s1", b"f5|Bob", b"", b"e1"]
    redis("HSET", nodes, "~buckets", 5)  # what is found is right, what is not may be in another bucket
    assert redis.verb("read", keys, *asked) == [b"o5||Ann|a||n1-s1", b"f5|Bob", 5, b"e1"]


# --- growth ---

USERS = [f"t{number % 7}/user.{number}" for number in range(400)]


def number_of(field: str) -> int:
    tenant, _, user = field.partition("/")
    return keys.number_of(tenant, user)[1]


def fill_buckets(redis: Partition, count: int) -> None:
    """Put half of the users into the presence buckets and half into the seen buckets of a partition."""
    redis("HSET", "nodes", "~buckets", count, "~epoch", "e1")
    for index, field in enumerate(USERS):
        kind = ("presence", "seen")[index % 2]
        redis("HSET", f"{kind}:{keys.bucket_with(number_of(field), count):02x}", field, f"record of {field}")


def layout(redis: Partition) -> dict[str, list[str]]:
    names = [name.decode() for name in redis("KEYS", "*:*")]
    return {name: sorted(field.decode() for field in redis("HKEYS", name)) for name in names}


def grow(redis: Partition, count: int, wanted: int, buckets: Sequence[int], epoch: str = "") -> int:
    names = [f"{kind}:{bucket:02x}" for bucket in buckets for kind in ("presence", "seen")]
    done: int = redis.verb("grow", ["nodes", *names], count, wanted, epoch)
    return done


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 63, 64, 126])
def test_a_partition_grows_by_one_bucket_and_everybody_is_where_nodes_look(redis: Partition, count: int) -> None:
    fill_buckets(redis, count)
    (added,) = {*keys.bucket_names(count + 1)} - {*keys.bucket_names(count)}
    redis("HSET", f"presence:{added:02x}", "t/left", "from lost data")
    assert grow(redis, count, count + 1, [keys.bucket_with(added, count), added]) == count + 1
    assert redis("HGET", "nodes", "~buckets") == str(count + 1).encode()
    grown = layout(redis)
    ttl = redis("PTTL", f"presence:{added:02x}")
    assert f"presence:{added:02x}" not in grown or DAY_MS - 60_000 < ttl <= DAY_MS
    redis("FLUSHALL")
    fill_buckets(redis, count + 1)
    assert grown == layout(redis)
    assert redis("HGET", f"presence:{keys.bucket_with(number_of(USERS[0]), count + 1):02x}", USERS[0]) is not None


def test_a_partition_that_has_grown_already_does_not_change(redis: Partition) -> None:
    fill_buckets(redis, 3)
    before = layout(redis)
    assert grow(redis, 2, 3, [64, 96]) == 3
    assert layout(redis) == before


def test_the_last_step_is_the_layout_that_older_nodes_know(redis: Partition) -> None:
    fill_buckets(redis, 127)
    assert grow(redis, 127, 128, [126, 127]) == 128
    assert redis("HEXISTS", "nodes", "~buckets") == 0
    assert redis("HGET", "nodes", "~epoch") == b"e1"


def test_a_partition_that_grows_completely_keeps_records_of_older_nodes_and_has_another_epoch(redis: Partition) -> None:
    fill_buckets(redis, 3)
    newer = f"presence:{number_of(USERS[0]):02x}"
    redis("HSET", newer, USERS[0], "by an older node")
    assert grow(redis, 3, 128, range(128), "e2") == 128
    assert (redis("HEXISTS", "nodes", "~buckets"), redis("HGET", "nodes", "~epoch")) == (0, b"e2")
    assert redis("HGET", newer, USERS[0]) == b"by an older node"
    grown = layout(redis)
    redis("FLUSHALL")
    fill_buckets(redis, 128)
    assert grown == layout(redis)


def test_a_verb_with_another_number_of_buckets_is_refused_and_changes_nothing(redis: Partition) -> None:
    redis.node("n1")
    redis.user("ann", "n1-s1,,,,1")
    redis("HSET", "nodes", "~buckets", 5)
    before = redis("HGETALL", "bucket")
    user = {
        "touch": ("n1-s2", "n1", 1, "default", "a", "Ann"),
        "adopt": ("n1-s2", "n1", 1, "n1-s1"),
        "linger": ("n1-s1", "n1", 1, 0, 0),
        "leave": ("n1-s1", "n1", 1),
        "status": ("", 1, "", ""),
        "settle": (),
        "erase": (),
    }
    for name, arguments in user.items():
        with pytest.raises(hiredis.ReplyError, match=r"^BUCKETS 5"):
            redis.of_user(name, "ann", *arguments)
    with pytest.raises(hiredis.ReplyError, match=r"^BUCKETS 5"):
        redis.reap()
    with pytest.raises(hiredis.ReplyError, match=r"^BUCKETS 5"):
        redis.verb("audit", ["nodes", "bucket"], "n1", 128)
    assert redis("HGETALL", "bucket") == before


def test_typing_that_began_before_the_clock_went_back_does_not_last_longer(redis: Partition) -> None:
    redis("ZADD", "typing", redis.now + 2_000, "ann|Ann", redis.now - 1_000, "bob|Bob")
    bob, bob_left, ann, ann_left = redis.verb("typers", ["typing", "nodes"], "", 5_000)
    assert (bob, ann, ann_left) == (b"bob|Bob", b"ann|Ann", 5_000)
    assert 0 < bob_left <= 4_000
