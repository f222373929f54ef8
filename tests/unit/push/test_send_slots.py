"""Send slots: hosts that hang take few of them, and hosts that have never answered share a small number."""

from __future__ import annotations

import asyncio

from greendot.push.send_slots import HostSlots, Slots


def slots(each: int = 4, unproven: int = 4, unproven_each: int = 2) -> Slots:
    return Slots(each=each, unproven=unproven, unproven_each=unproven_each)


def known() -> HostSlots:
    return HostSlots(is_known=True)


def stranger() -> HostSlots:
    return HostSlots(is_known=False)


async def acquired(room: Slots, host: HostSlots, count: int) -> list[asyncio.Task[bool]]:
    """Start `count` sends. Tasks that got a slot are done."""
    tasks = [asyncio.create_task(room.acquire(host)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def given(tasks: list[asyncio.Task[bool]]) -> int:
    return sum(task.done() for task in tasks)


async def end(*groups: list[asyncio.Task[bool]]) -> None:
    tasks = [task for group in groups for task in group]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_host_has_a_fixed_number_of_slots_and_the_next_send_waits() -> None:
    room, host = slots(each=2), known()
    sends = await acquired(room, host, 5)
    assert given(sends) == 2
    room.release(host, sends[0].result())
    await asyncio.sleep(0)
    assert [task.done() for task in sends] == [True, True, True, False, False]
    await end(sends)


async def test_hosts_that_have_not_answered_share_a_few_slots() -> None:
    room, hosts = slots(unproven=4, unproven_each=2), [stranger() for _ in range(10)]
    sends = [await acquired(room, host, 5) for host in hosts]
    assert [given(group) for group in sends] == [2, 2, *[0] * 8]
    friend = known()
    assert given(await acquired(room, friend, 4)) == 4, "known hosts must have slots of their own"
    await end(*sends)


async def test_hosts_that_wait_get_their_turn_one_after_the_other() -> None:
    room, hosts = slots(unproven=1, unproven_each=1), [stranger() for _ in range(3)]
    sends = [await acquired(room, host, 3) for host in hosts]
    order = []
    for _ in range(9):
        (at,) = [number for number, host in enumerate(hosts) if host.under_way]
        order.append(at)
        room.release(hosts[at], False)
        await asyncio.sleep(0)
    assert order == [0, 0, 1, 2, 0, 1, 2, 1, 2]
    assert [given(group) for group in sends] == [3, 3, 3]


async def test_a_host_that_answers_gets_slots_of_its_own_and_loses_them_when_it_fails() -> None:
    room, host, silent = slots(each=4, unproven=2, unproven_each=1), stranger(), stranger()
    sends, hanging = await acquired(room, host, 10), await acquired(room, silent, 10)
    assert (given(sends), given(hanging)) == (1, 1)
    room.prove(host, True)
    await asyncio.sleep(0)
    assert given(sends) == 4, "waiting sends must get slots as well"
    room.prove(host, False)
    for was_proven in (False, True, True, True):
        room.release(host, was_proven)
    await asyncio.sleep(0)
    assert given(sends) == 5, "the host must be limited to one send again"
    await end(sends, hanging)


async def test_a_send_that_is_given_up_loses_no_slot() -> None:
    room, host = slots(each=1), known()
    first, second, third = await acquired(room, host, 3)
    second.cancel()
    room.release(host, first.result())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert third.done()
    (late,) = await acquired(room, host, 1)
    room.release(host, third.result())  # `late` gets its slot, and is cancelled before it resumes
    late.cancel()
    await asyncio.gather(second, late, return_exceptions=True)
    assert second.cancelled()
    assert host.under_way == 0
    assert await room.acquire(host)


async def test_given_up_sends_of_silent_hosts_leave_nothing_behind() -> None:
    room, hosts = slots(unproven=1, unproven_each=1), [stranger() for _ in range(3)]
    sends = [await acquired(room, host, 2) for host in hosts]
    await end(sends[1])
    for _ in range(2):  # both sends of the first host
        room.release(hosts[0], False)
        await asyncio.sleep(0)
    assert given(sends[2]) == 1
    await end(*sends)


async def test_a_cancelled_send_is_reported_as_cancelled_and_leaves_the_queue() -> None:
    room, host = slots(each=1), known()
    (first,) = await acquired(room, host, 1)
    (second,) = await acquired(room, host, 1)
    second.cancel()
    (ended,) = await asyncio.gather(second, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert (first.done(), [*host.waiting]) == (True, [])


async def test_what_a_known_host_answers_changes_nothing_of_its_slots() -> None:
    room, host = slots(each=2, unproven=1, unproven_each=1), known()
    sends = await acquired(room, host, 3)
    room.prove(host, False)
    assert host.is_proven
    room.release(host, sends[0].result())
    await asyncio.sleep(0)
    assert given(sends) == 3
    await end(sends)


async def test_a_host_that_fails_while_others_wait_for_it_takes_its_turn_again() -> None:
    room, host, other = slots(each=1, unproven=1, unproven_each=1), stranger(), stranger()
    room.prove(host, True)
    sends = await acquired(room, host, 2)
    room.prove(host, False)
    await asyncio.sleep(0)
    assert given(sends) == 1, "one send is under way, which is the limit now"
    room.release(host, sends[0].result())
    await asyncio.sleep(0)
    assert given(sends) == 2
    hanging = await acquired(room, other, 1)
    assert given(hanging) == 0
    await end(sends, hanging)
