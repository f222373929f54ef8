"""Users with very many watchers: changes are delivered in slices, or watchers poll. Real sockets, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from greendot.engine.messages import Part, Topic
from greendot.presence.celebrity_model import CelebrityThresholds
from greendot.testing import Served, WireClient, serving

Entry = dict[str, Any]


async def watch(client: WireClient, user: str = "star") -> Entry:
    (entry,) = (await client.request(type="watch", users=[user]))["presence"]
    return dict(entry)


async def ask(client: WireClient, user: str = "star") -> Entry:
    (entry,) = (await client.request(type="presence.get", users=[user]))["presence"]
    return dict(entry)


async def fans(served: Served, count: int, first: int = 0) -> list[WireClient]:
    """Connect watchers of `star`, a hundred at a time."""
    found: list[WireClient] = []
    for at in range(first, first + count, 100):
        numbers = range(at, min(at + 100, first + count))
        new = await asyncio.gather(*(served.client(f"fan{number}") for number in numbers))
        await asyncio.gather(*map(watch, new))
        found += new
    return found


async def heard(clients: Sequence[WireClient]) -> list[list[Entry]]:
    """Return the presence changes that each client received since the last call."""
    return [[frame["data"] for frame in await client.quiet()] for client in clients]


def reads(served: Served) -> list[Any]:
    """Return a list that records each read of the engine from now on."""
    made: list[Any] = []
    read = served.node.engine.read
    served.node.engine.read = lambda *args: (made.append(args), read(*args))[1]  # type: ignore[method-assign]
    return made


async def test_two_thousand_watchers_of_a_user_who_toggles_each_second_get_slices_and_the_last_state() -> None:
    count, crowding = 2_000, CelebrityThresholds(200, 10_000)
    many = {"hellos_per_s": 10_000}  # all connect within the first virtual second
    async with serving(presence={"celebrity_watchers": 200, "idle_s": 0.5}, admission=many) as served:
        star = await served.client("star")
        watchers = await fans(served, count)
        await served.advance(2)
        metrics, sent = served.node.metrics, list[int]()
        for _ in range(30):
            before = metrics.realtime_socket_send_total, metrics.presence_spread_total
            star.send(type="activity")
            await star.drain()
            await served.advance(1)  # online at once, idle after half a second
            sent.append(metrics.realtime_socket_send_total - before[0])
            assert metrics.presence_spread_total - before[1] == sent[-1]
        assert max(sent) <= crowding.per_s(count) + 1
        assert min(sent) >= crowding.per_s(count) - 1
        await served.advance(count / crowding.per_s(count))
        truth = await ask(watchers[0])
        assert truth["state"] == "idle"
        for told in await heard(watchers):
            versions = [entry["version"] for entry in told]
            assert versions == sorted({*versions}), "a change came twice or out of order"
            assert (told[-1]["version"], told[-1]["state"]) == (truth["version"], "idle")
        before = metrics.presence_spread_total, served.timers
        await served.advance(30)
        assert (metrics.presence_spread_total, served.timers) == before


async def test_up_to_the_threshold_all_watchers_are_notified_at_once() -> None:
    async with serving(presence={"celebrity_watchers": 5}) as served:
        watchers = await fans(served, 5)
        star = await served.client("star")
        assert [[entry["state"] for entry in told] for told in await heard(watchers)] == [["online"]] * 5
        watchers += await fans(served, 1, first=5)
        await star.request(type="status.set", status="busy")
        assert [told for told in await heard(watchers) if told] == []
        await served.advance(11)
        assert [[entry["state"] for entry in told] for told in await heard(watchers)] == [["busy"]] * 6


async def test_the_few_watchers_that_remain_are_notified_at_once_again() -> None:
    async with serving(presence={"celebrity_watchers": 5}) as served:
        watchers, star = await fans(served, 6), await served.client("star")
        await served.advance(2)  # some watchers have received the online state
        for watcher in watchers[5:]:
            await watcher.request(type="unwatch", users=["star"])
        # Five watchers are not few enough: delivery stays in slices.
        await star.request(type="status.set", status="busy")
        assert sum(entry["state"] == "busy" for told in await heard(watchers) for entry in told) == 0
        await watchers[4].request(type="unwatch", users=["star"])
        await star.request(type="status.set", status="auto")
        told = await heard(watchers)
        assert [entries[-1:] and entries[-1]["state"] for entries in told] == ["online"] * 4 + [[], []]
        await served.advance(30)
        assert [entries for entries in await heard(watchers) if entries] == []


async def test_active_watchers_receive_a_change_first() -> None:
    async with serving(presence={"celebrity_watchers": 2}) as served:
        watchers = await fans(served, 40)
        await served.advance(200, alive=watchers)
        for watcher in watchers[1::2]:
            watcher.send(type="activity")
            await watcher.quiet()
        await served.client("star")
        await served.advance(4)
        told = [bool(entries) for entries in await heard(watchers)]
        assert sum(told[1::2]) > 10
        assert sum(told[::2]) == 0
        await served.advance(7)
        assert all(told or entries for told, entries in zip(told, await heard(watchers), strict=True))


async def test_the_own_devices_of_a_celebrity_receive_changes_at_once() -> None:
    async with serving(presence={"celebrity_watchers": 2, "celebrity_polling": 4}) as served:
        await fans(served, 10)
        phone, laptop = await served.client("star", device="phone"), await served.client("star", device="laptop")
        assert (await watch(phone))["mode"] == "live"
        await laptop.request(type="status.set", status="invisible")
        (entry,) = (await heard([phone]))[0]
        assert (entry["state"], entry["status"], entry["mode"]) == ("online", "invisible", "live")
        await served.advance(31, alive=[phone, laptop])
        assert (await heard([phone]))[0] == []


async def test_changes_sent_in_slices_are_not_repeated_to_the_own_devices_of_the_user() -> None:
    async with serving(presence={"celebrity_watchers": 5}) as served:
        phone, watchers = await served.client("star", device="phone"), await fans(served, 10)
        await watch(phone)
        await phone.request(type="status.set", status="invisible")
        own, *_ = await served.advance(11, alive=[phone])
        assert [(frame["data"]["state"], frame["data"]["status"]) for frame in own] == [("online", "invisible")]
        assert [[entry["state"] for entry in told] for told in await heard(watchers)] == [["offline"]] * 10


async def test_slices_wait_until_an_earlier_change_is_sent_to_all_watchers() -> None:
    async with serving(presence={"celebrity_watchers": 5}) as served:
        watchers, channel = await fans(served, 10), served.node.hub.find(Topic("watch", "default", "star"))
        assert channel is not None
        channel.queued = True  # as if an older state had not been written to all watchers yet
        await served.client("star")
        await served.advance(11)
        assert await heard(watchers) == [[]] * 10
        channel.queued = False
        await served.advance(11)
        assert [[entry["state"] for entry in told] for told in await heard(watchers)] == [["online"]] * 10


async def test_watchers_that_come_go_or_return_meanwhile_get_the_last_state_and_none_twice() -> None:
    async with serving(presence={"celebrity_watchers": 10}) as served:
        watchers, star = await fans(served, 40), await served.client("star")
        await served.advance(3)
        told = await heard(watchers)
        early = [watcher for watcher, entries in zip(watchers, told, strict=True) if entries]
        late = [watcher for watcher, entries in zip(watchers, told, strict=True) if not entries]
        assert len(early) in range(8, 16)
        (newcomer,) = await fans(served, 1, first=100)
        await late[0].request(type="unwatch", users=["star"])
        await late[1].request(type="unwatch", users=["star"])
        assert (await watch(late[1]))["state"] == "online"
        # The session of another user: not resumed.
        resumed = await served.client("back", resume={"session": late[2].welcome["session"]})
        moved = await served.client("fan39", resume={"session": watchers[39].welcome["session"]})
        assert moved.welcome["resumed"]
        assert (await watch(moved))["state"] == (await watch(resumed))["state"] == "online"
        await late[3].reset()
        await served.until_gone(len(served.node.registry.connections) - 1)
        await served.advance(11)
        silent = [newcomer, late[0], late[1], resumed, moved]
        assert await heard(silent) == [[]] * 5
        listening = [w for w in late if w not in (*silent, late[3], watchers[39])]
        assert [[entry["state"] for entry in entries] for entries in await heard(listening)] == [["online"]] * len(
            listening
        )
        await star.request(type="status.set", status="busy")
        await served.advance(11)
        everybody = [*early, *listening, newcomer, late[1], resumed, moved]
        assert [[entry["state"] for entry in entries] for entries in await heard(everybody)] == [["busy"]] * len(
            everybody
        )


async def test_above_the_second_threshold_watchers_receive_the_poll_mode_and_no_more_changes() -> None:
    async with serving(presence={"celebrity_watchers": 5, "celebrity_polling": 10}) as served:
        star, watchers = await served.client("star"), await fans(served, 10)
        eleventh = await served.client("eleventh")
        entry = await watch(eleventh)
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("online", "poll", True)
        await served.advance(31)
        for told in await heard(watchers):
            assert [(e["mode"], e["recently_active"], e["state"]) for e in told] == [("poll", True, "online")]
        sent = served.node.metrics.realtime_socket_send_total
        for status in ("busy", "auto", "busy"):
            await star.request(type="status.set", status=status)
            await served.advance(10)
        assert served.node.metrics.realtime_socket_send_total - sent == 3  # replies to the star's own commands
        made = reads(served)
        for watcher in watchers:
            entry = await ask(watcher)
            assert (entry["state"], entry["mode"], entry["recently_active"]) == ("busy", "poll", True)
        assert made == []
        assert await heard([eleventh]) == [[]]

        for watcher in watchers[:2]:
            await watcher.request(type="unwatch", users=["star"])
        await served.advance(31)
        assert await heard(watchers) == [[]] * 10  # nine watchers are not few enough
        await watchers[2].request(type="unwatch", users=["star"])
        await served.advance(31)
        told = await heard([*watchers[3:], eleventh])
        assert [[(e["mode"], e["state"]) for e in entries] for entries in told] == [[("live", "busy")]] * 8
        assert all("recently_active" not in entry for entries in told for entry in entries)
        await star.request(type="status.set", status="auto")
        await served.advance(31)
        told = await heard([*watchers[3:], eleventh])
        assert [[(e["mode"], e["state"]) for e in entries] for entries in told] == [[("live", "online")]] * 8


async def test_polling_that_ends_while_it_is_announced_leaves_no_watcher_with_the_wrong_mode() -> None:
    async with serving(presence={"celebrity_watchers": 5, "celebrity_polling": 10}) as served:
        await served.client("star")
        watchers = await fans(served, 11)
        await served.advance(2)
        for watcher in watchers[8:]:
            await watcher.reset()
        await served.until_gone(9)
        await served.advance(31)
        for told in await heard(watchers[:8]):
            assert told[-1]["mode"] == "live"


async def test_a_user_named_in_the_settings_is_polled_even_with_few_watchers() -> None:
    async with serving(presence={"polled": ("default/star",)}) as served:
        bob, stranger = await served.client("bob"), await served.client("bob", claims={"tenant": "other"})
        entry = await watch(bob)
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("offline", "poll", False)
        assert (await watch(stranger))["mode"] == "live"
        star = await served.client("star")
        assert await heard([bob]) == [[]]
        assert ((await ask(bob))["state"], (await ask(bob))["mode"]) == ("online", "poll")
        entry = await ask(star)
        assert (entry["mode"], entry["status"]) == ("live", "auto")
        blind = await served.client("blind", claims={"watch": ["nobody"]})
        entry = await ask(blind)
        assert (entry["state"], entry["mode"], entry["version"]) == ("offline", "live", 0)
        assert "recently_active" not in entry


async def test_thousands_of_questions_about_one_user_are_a_read_of_the_engine_every_few_seconds() -> None:
    async with serving(presence={"polled": ("default/star",)}) as served:
        star, askers = await served.client("star"), [await served.client(f"asker{number}") for number in range(20)]
        made = reads(served)
        for second in range(20):
            for _ in range(5):
                found = await asyncio.gather(*map(ask, askers))
                assert {entry["state"] for entry in found} == {"busy" if second >= 10 else "online"}
            if second == 9:
                await star.request(type="status.set", status="busy")
                made = [args for args in made if args[1] == ["star"]]
            await served.advance(1)
        assert len([args for args in made if args[1] == ["star"]]) <= 5
        assert served.node.metrics.realtime_commands_total > 2_000
        await served.advance(5)
        assert served.node.hub.topics == 0  # no user is watched


async def test_other_users_of_the_same_question_are_answered_as_ever_and_in_order() -> None:
    async with serving(presence={"polled": ("default/star",)}) as served:
        await served.client("star")
        await served.client("alice")
        bob = await served.client("bob")
        users = ["alice", "star", "nobody", "star", "bob"]
        found = (await bob.request(type="presence.get", users=users))["presence"]
        assert [entry["user"] for entry in found] == users
        assert [entry["mode"] for entry in found] == ["live", "poll", "live", "poll", "live"]
        assert [entry["state"] for entry in found] == ["online", "online", "offline", "online", "online"]
        assert found[1]["devices"] == ["default"]


async def test_who_is_invisible_looks_as_if_they_had_gone_then() -> None:
    async with serving(presence={"polled": ("default/star",)}) as served:
        star, bob = await served.client("star"), await served.client("bob")
        await star.request(type="status.set", status="invisible")
        hidden_at = served.clock.now_ms()
        for minute in range(7):
            entry = await ask(bob)
            assert (entry["state"], entry["last_seen"], entry["devices"]) == ("offline", hidden_at, [])
            assert entry["recently_active"] == (minute <= 5)
            star.send(type="activity")  # activity of an invisible user stays hidden
            await served.advance(60, alive=[star, bob])


async def test_recently_active_is_being_there_or_having_been_within_five_minutes() -> None:
    async with serving(presence={"polled": ("default/star",), "idle_s": 100.0, "clean_grace_s": 0}) as served:
        star, bob = await served.client("star"), await served.client("bob")
        await served.advance(100, alive=[star, bob])
        assert ((await ask(bob))["state"], (await ask(bob))["recently_active"]) == ("idle", True)
        await served.advance(301, alive=[star, bob])
        assert ((await ask(bob))["state"], (await ask(bob))["recently_active"]) == ("idle", False)
        star.send(type="activity")
        await star.quiet()
        assert (await ask(bob))["recently_active"]
        await star.close()
        await served.until_gone(1)
        assert ((await ask(bob))["state"], (await ask(bob))["recently_active"]) == ("offline", True)
        await served.advance(301, alive=[bob])
        assert ((await ask(bob))["state"], (await ask(bob))["recently_active"]) == ("offline", False)


@pytest.mark.parametrize("polling", [False, True])
async def test_stale_states_are_sent_in_slices_or_returned_when_requested(polling: bool) -> None:
    async with serving(presence={"celebrity_watchers": 5, "celebrity_polling": 9 if polling else 99}) as served:
        star, watchers = await served.client("star"), await fans(served, 20)
        await served.advance(31)
        await heard(watchers)
        for stale in (True, None):
            if stale:
                await served.node.watching.mark_stale(Part())
            else:
                await served.node.watching.resync(Part(), intact=True)
            assert await heard(watchers) == [[]] * 20
            await served.advance(31, alive=[star])
            told = await heard(watchers)
            if polling:
                assert told == [[]] * 20
                assert (await ask(watchers[0])).get("stale") == stale
            else:
                assert [[entry.get("stale") for entry in entries] for entries in told] == [[stale]] * 20


async def test_after_a_loss_in_the_middle_of_it_all_end_with_what_is_true_then() -> None:
    async with serving(presence={"celebrity_watchers": 5}) as served:
        star, watchers = await served.client("star"), await fans(served, 20)
        await star.request(type="status.set", status="busy")
        await served.advance(3)
        served.node.watching.hold(Part(), 7.0)
        await star.request(type="status.set", status="auto")  # not delivered: the watches are being restored
        await served.advance(7.1)
        await served.node.watching.resync(Part(), intact=False)
        await served.advance(11)
        for told in await heard(watchers):
            assert [entry["state"] for entry in told][-1] == "online"
            versions = [entry["version"] for entry in told]
            assert versions == sorted({*versions})
