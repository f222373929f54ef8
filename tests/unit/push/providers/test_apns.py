"""APNs: requests over HTTP/2 as Apple documents them, and the meaning of its responses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from fake_providers import Answer, PlayedApns, playing, until
from fake_providers.apns import KEY_ID, TEAM, TOPIC
from greendot.push.payload import SendResult
from greendot.push.providers.apns import Account, Apns
from greendot.testing import ManualClock
from greendot.transport.http_client import Terms
from push_payloads import BODY, device, payload
from redis_servers.tls import Certificates

NOW = 1_800_000_000_000
PHONE = device("apns", "a1b2c3d4" * 8, created_at=NOW - 1_000)


@asynccontextmanager
async def sending(
    made: Certificates, terms: Terms, **options: Any
) -> AsyncIterator[tuple[PlayedApns, Apns, ManualClock]]:
    clock = ManualClock(NOW)
    async with playing(PlayedApns(clock), made) as apns:
        sender = Apns(Account(apns.key(), KEY_ID, TEAM, TOPIC), terms, clock, url=apns.url, **options)
        try:
            yield apns, sender, clock
        finally:
            await sender.close()


async def test_a_notification_is_sent_as_apple_documents_it(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        assert await sender.send(PHONE, payload(collapse="lobby", expires_at=NOW + 90_500)) == SendResult("sent")
        (taken,) = apns.taken
    assert taken.token == PHONE.token
    assert taken.headers["apns-push-type"] == "alert"
    assert taken.headers["apns-priority"] == "10"
    assert taken.headers["apns-expiration"] == "1800000090"
    assert taken.headers["apns-collapse-id"] == "lobby"
    assert taken.payload == {
        "aps": {"alert": {"title": "Mia", "body": "Are you there?"}, "mutable-content": 1, "sound": "default"},
        "greendot": {
            "key": "n1.phone",
            "id": "n1",
            "seq": 7,
            "kind": "message",
            "created_at": 1_700_000_000_000,
            "body": json.loads(BODY),
        },
    }


async def test_without_words_to_show_the_app_is_woken(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        await sender.send(PHONE, payload(title=None, text=None, body=None))
    (taken,) = apns.taken
    assert taken.payload["aps"] == {"content-available": 1}
    assert (taken.headers["apns-push-type"], taken.headers["apns-priority"]) == ("background", "5")
    assert "apns-expiration" not in taken.headers


async def test_without_words_to_show_a_placeholder_is_shown(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms, placeholder="Something new") as (apns, sender, _):
        await sender.send(PHONE, payload(title=None, text=None, body=None, importance="low"))
    (taken,) = apns.taken
    assert taken.payload["aps"] == {"alert": {"body": "Something new"}, "mutable-content": 1}
    assert taken.headers["apns-priority"] == "5"


async def test_the_same_push_has_the_same_id_another_has_another(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        for key in ("n1.phone", "n1.phone", "n2.phone"):
            await sender.send(PHONE, payload(key=key))
    ids = [taken.headers["apns-id"] for taken in apns.taken]
    collapses = [taken.headers["apns-collapse-id"] for taken in apns.taken]
    assert ids[0] == ids[1] != ids[2]
    assert collapses == ["n1.phone", "n1.phone", "n2.phone"]


async def test_a_collapse_key_that_is_too_long_is_replaced_by_one_that_stands_for_it(
    made: Certificates, terms: Terms
) -> None:
    async with sending(made, terms) as (apns, sender, _):
        for collapse in ("x" * 65, "x" * 65, "x" * 66, "x" * 64):
            assert (await sender.send(PHONE, payload(collapse=collapse))).outcome == "sent"
    found = [taken.headers["apns-collapse-id"] for taken in apns.taken]
    assert found[0] == found[1] != found[2]
    assert found[3] == "x" * 64


async def test_what_is_too_long_goes_without_its_body_or_with_ids_only(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        long = Raw(json.dumps({"title": "Mia", "more": "x" * 4_000}).encode())
        assert await sender.send(PHONE, payload(body=long)) == SendResult("sent")
        assert await sender.send(PHONE, payload(body=long, text="y" * 5_000)) == SendResult("sent")
        apns.most_bytes = 200  # less than APNs documents
        assert (await sender.send(PHONE, payload())).outcome == "sent"
        apns.most_bytes = 100
        assert (await sender.send(PHONE, payload())).outcome == "refused"
    first, second, third = apns.taken
    assert first.payload["aps"]["alert"]["title"] == "Mia"
    assert "body" not in first.payload["greendot"]
    assert second.payload["aps"] == third.payload["aps"] == {"content-available": 1}


async def test_many_go_over_one_connection(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        sent = await asyncio.gather(*(sender.send(PHONE, payload(key=f"k{n}")) for n in range(300)))
        assert {one.outcome for one in sent} == {"sent"}
        assert (len(apns.keys), apns.connected, len(apns.provider_tokens)) == (300, 1, 1)


def refused(status: int, reason: str, **more: Any) -> Answer:
    return Answer(status, json.dumps({"reason": reason} | more).encode())


@pytest.mark.parametrize(
    ("answer", "outcome", "is_away"),
    [
        (refused(410, "Unregistered", timestamp=NOW), "gone", False),
        (refused(410, "Unregistered", timestamp=NOW - 5_000), "failed", False),  # the device registered again meanwhile
        (refused(410, "ExpiredToken"), "gone", False),
        (Answer(410), "gone", False),
        (refused(400, "BadDeviceToken"), "gone", False),
        (refused(400, "DeviceTokenNotForTopic"), "refused", False),
        (refused(400, "BadTopic"), "refused", False),
        (refused(403, "InvalidProviderToken"), "refused", False),
        (refused(429, "TooManyRequests"), "failed", False),  # for this device only
        (refused(429, "TooManyProviderTokenUpdates"), "failed", True),
        (refused(500, "InternalServerError"), "failed", True),
        (refused(503, "Shutdown"), "failed", True),
        (Answer(503, b"<html>"), "failed", True),
    ],
)
async def test_what_an_answer_means(
    made: Certificates, terms: Terms, answer: Answer, outcome: str, is_away: bool
) -> None:
    async with sending(made, terms) as (apns, sender, _):
        apns.script.append(answer)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == (outcome, is_away), sent
        assert str(answer.status) in sent.reason
        assert PHONE.token not in sent.reason


async def test_how_long_to_wait_is_obeyed(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        apns.script.append(refused(503, "ServiceUnavailable")._replace(headers={"retry-after": "12"}))
        assert (await sender.send(PHONE, payload())).wait_s == 12


@pytest.mark.parametrize("token", ["", "not hex", "a1b2c3d4/../../x", "a1b2c3d4\r\nx: y", "a" * 201])
async def test_what_is_no_token_of_apns_is_not_asked_about(made: Certificates, terms: Terms, token: str) -> None:
    async with sending(made, terms) as (apns, sender, _):
        assert (await sender.send(device("apns", token), payload())).outcome == "gone"
        assert apns.asked == []


# --- provider tokens ---


async def test_the_provider_token_is_made_anew_every_forty_minutes(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, clock):
        for _ in range(24):  # two hours
            assert (await sender.send(PHONE, payload())).outcome == "sent"
            clock.advance(300)
        assert len(apns.provider_tokens) == 3


async def test_a_provider_token_that_has_ended_is_replaced_once(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, clock):
        await sender.send(PHONE, payload())
        clock.advance(61)
        clock.jump_wall(7_200)  # the clock was wrong when the token was made
        sent = await asyncio.gather(*(sender.send(PHONE, payload(key=f"k{n}")) for n in range(5)))
        assert {one.outcome for one in sent} == {"sent"}
        assert len(apns.provider_tokens) == 2


async def test_provider_tokens_are_not_made_again_and_again(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (apns, sender, _):
        apns.behave = lambda asked: refused(403, "ExpiredProviderToken")
        for _ in range(3):
            sent = await sender.send(PHONE, payload())
            assert (sent.outcome, sent.is_away) == ("failed", True)
        assert len({asked.headers["authorization"] for asked in apns.asked}) == 1


# --- the connection ---


@pytest.mark.parametrize("does", ["hang", "slow", "reset", "lost", "goaway"])
async def test_no_answer_is_a_failure_and_the_next_may_be_answered(made: Certificates, terms: Terms, does: Any) -> None:
    terms.timeout_s = 1.0
    async with sending(made, terms) as (apns, sender, _):
        apns.script.append(does)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == ("failed", True), sent
        assert (await sender.send(PHONE, payload())).outcome == "sent"
        if does != "hang":  # after a hang, data received meanwhile decides whether the connection is kept
            assert apns.connected == (1 if does == "slow" else 2)
        assert apns.keys == {"n1.phone": 2 if does == "lost" else 1}


@pytest.mark.parametrize("ended", ["goaway", "cut"])
async def test_a_connection_that_apple_has_closed_meanwhile_costs_nothing(
    made: Certificates, terms: Terms, ended: str
) -> None:
    async with sending(made, terms) as (apns, sender, _):
        await sender.send(PHONE, payload(key="k1"))
        (connection,) = apns.connections
        if ended == "cut":
            connection.cut()
        else:
            connection._state.close_connection()
            connection._flush()
            connection.transport.close()
        ours = sender._caller._connection
        assert ours is not None
        await until(lambda: not (apns.connections or ours.is_good()))
        assert await sender.send(PHONE, payload(key="k2")) == SendResult("sent")
        assert (apns.keys, apns.connected) == ({"k1": 1, "k2": 1}, 2)


async def test_one_that_hangs_does_not_take_the_others_with_it(made: Certificates, terms: Terms) -> None:
    terms.timeout_s = 4.0
    async with sending(made, terms) as (apns, sender, _):
        apns.behave = lambda asked: "hang" if json.loads(asked.body)["greendot"]["key"] == "bad" else None
        await sender.send(PHONE, payload(key="first"))
        hanging = asyncio.create_task(sender.send(PHONE, payload(key="bad")))
        sent = await asyncio.gather(*(sender.send(PHONE, payload(key=f"k{n}")) for n in range(50)))
        assert {*sent} == {SendResult("sent")}
        assert (await hanging).outcome == "failed"
        assert (await sender.send(PHONE, payload(key="after"))).outcome == "sent"
        assert set(apns.keys.values()) == {1}


async def test_nothing_secret_is_logged(made: Certificates, terms: Terms, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with sending(made, terms) as (apns, sender, _):
        await sender.send(PHONE, payload())
        for secret in (*apns.provider_tokens, PHONE.token, "Are you there?"):
            assert secret not in caplog.text
