"""Counter of the hottest topics, active while it is read."""

from __future__ import annotations

from greendot.node.hub_model import HOLD_S, MOST, PERIOD_S, HotTopics


def test_counts_are_reported_per_second_once_a_period_is_over() -> None:
    hot_topics = HotTopics[str](0.0)
    hot_topics.add("den", 10)
    hot_topics.add("den", 20)
    hot_topics.add("hall", 1)
    assert hot_topics.per_s(PERIOD_S / 2) == {}
    assert hot_topics.per_s(2.0) == {"den": 15.0, "hall": 0.5}


def test_two_who_look_at_almost_the_same_time_see_the_same() -> None:
    hot_topics = HotTopics[str](0.0)
    hot_topics.add("den", 10)
    assert hot_topics.per_s(1.0) == hot_topics.per_s(1.0 + PERIOD_S / 2) == {"den": 10.0}
    assert hot_topics.per_s(2.0) == {}


def test_hot_topics_are_kept_while_they_are_requested() -> None:
    hot_topics = HotTopics[str](0.0)
    assert hot_topics.ends_at == HOLD_S
    hot_topics.per_s(3.0)
    assert hot_topics.ends_at == 3.0 + HOLD_S


def test_no_more_topics_are_counted_than_it_has_room_for() -> None:
    hot_topics = HotTopics[int](0.0)
    for number in range(MOST + 5):
        hot_topics.add(number, 1)
    hot_topics.add(0, 1)
    found = hot_topics.per_s(1.0)
    assert len(found) == MOST
    assert found[0] == 2.0


def test_a_period_is_over_to_the_moment() -> None:
    hot_topics = HotTopics[str](0.0)
    hot_topics.add("den", 8)
    assert hot_topics.per_s(PERIOD_S) == {"den": 8 / PERIOD_S}


def test_a_period_lasts_from_where_it_began() -> None:
    hot_topics = HotTopics[str](10.0)
    hot_topics.add("den", 6)
    assert hot_topics.per_s(12.0) == {"den": 3.0}
