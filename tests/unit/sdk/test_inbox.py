"""Notifications by the SDK: a retry sends the same notification."""

from __future__ import annotations

from datetime import timedelta

from greendot.sdk import Notification, Notified

from .plays import Said, in_turn, playing

MADE = {"id": "1-a", "seq": 1, "new": True}


def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    with playing(in_turn(Said(0), Said(201, MADE))) as stage:
        assert stage.server().notify("alice", "order", {"n": 1}) == Notified("1-a", 1, True)
        first, second = [asked.body for asked in stage.asked]
    assert first == second
    assert first["key"]


def test_two_calls_are_two_notifications_unless_they_are_given_one_key() -> None:
    with playing(in_turn(Said(201, MADE))) as stage:
        server = stage.server()
        for key in (None, None, "k", "k"):
            server.notify("alice", "order", key=key, ttl=timedelta(minutes=1))
        keys = [asked.body["key"] for asked in stage.asked]
        assert stage.asked[0].body["ttl_s"] == 60
        assert stage.asked[0].body["body"] is None
    assert keys[0] != keys[1]
    assert keys[2:] == ["k", "k"]


def test_the_options_of_a_push_are_sent_if_they_are_given() -> None:
    options = {"importance": "critical", "room": "lobby", "collapse": "c1", "push": False}
    with playing(in_turn(Said(201, MADE))) as stage:
        server = stage.server()
        server.notify("alice", "alarm", importance="critical", room="lobby", collapse="c1", push=False)
        server.notify("alice", "alarm")
        given, none = (asked.body for asked in stage.asked)
    assert {name: given[name] for name in options} == options
    assert not {*options} & {*none}


def test_many_are_one_request_and_each_has_its_key() -> None:
    with playing(in_turn(Said(0), Said(201, {"notifications": [MADE, MADE]}))) as stage:
        server = stage.server()
        made = server.notify_many(Notification(user=user, kind="order", body=1) for user in ("a", "b"))
        first, second = [asked.body["notifications"] for asked in stage.asked]
        assert server.notify_many([]) == []
        assert len(stage.asked) == 2
    assert made == [Notified("1-a", 1, True)] * 2
    assert first == second
    assert first[0]["key"] != first[1]["key"]
