"""Stored result of an attempt at a push."""

from __future__ import annotations

from greendot.push.attempt import Attempt
from greendot.push.payload import SendResult
from greendot.store.push import Device, Push

PHONE = Device("t1", "ann", "phone", "fcm", "token", 0, 0)


def test_what_a_provider_answers_is_kept_without_what_no_store_keeps() -> None:
    push = Push(7, "t1", "ann", 1, "normal", None, None, 0, 0, [], devices=[PHONE])
    trial = Attempt(push, now=0, give_up_ms=1_000, chance=0.5)
    settled = trial.settled("offline", [PHONE], [SendResult("refused", "bad\0 token \ud800")], None)
    assert [result.reason for result in settled.results] == ["bad� token �"]
    assert trial.put_off("cut\0off").reason == "cut�off"
