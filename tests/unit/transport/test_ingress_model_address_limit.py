from __future__ import annotations

from greendot.transport.ingress_model import AddressLimits


def test_an_address_group_over_its_limit_is_full_until_a_connection_leaves() -> None:
    houses = AddressLimits(2)
    for _ in range(2):
        assert not houses.is_full(houses.enter("a"))
    third = houses.enter("a")
    assert houses.is_full(third)
    assert not houses.is_full(houses.enter("b"))
    houses.leave(third)
    assert not houses.is_full(third)


def test_an_address_far_above_its_connection_limit_is_overrun() -> None:
    houses = AddressLimits(2)
    entered = [houses.enter("a") for _ in range(4)]
    assert not houses.is_overrun(entered[0])
    assert houses.is_overrun(houses.enter("a"))


def test_nothing_is_kept_of_those_who_left() -> None:
    houses = AddressLimits(1)
    for number in range(1_000):
        houses.leave(houses.enter(str(number)))
    assert len(houses) == 0


def test_without_a_limit_no_address_has_too_many_connections() -> None:
    houses = AddressLimits(0)
    for _ in range(10):
        entered = houses.enter("a")
    assert not houses.is_full(entered)
    assert not houses.is_overrun(entered)


def test_an_address_group_counts_from_zero_and_is_kept_while_it_has_connections() -> None:
    houses = AddressLimits(5)
    first = houses.enter("a")
    assert (first.name, first.count, len(houses)) == ("a", 1, 1)
    assert houses.enter("a") is first
    houses.leave(first)
    assert (first.count, len(houses)) == (1, 1)


def test_where_one_may_be_two_are_too_many() -> None:
    houses = AddressLimits(1)
    assert not houses.is_full(houses.enter("a"))
    assert houses.is_full(houses.enter("a"))
