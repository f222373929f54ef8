"""FCM: requests as Google documents them, and the meaning of its responses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from fake_providers import Answer, PlayedFcm, playing, until
from fake_providers.fcm import refusal
from greendot.push.payload import SendResult
from greendot.push.providers.fcm import Fcm
from greendot.push.providers.google_auth import read_account
from greendot.testing import ManualClock
from greendot.transport.http_client import Terms
from push_payloads import BODY, device, payload
from redis_servers.tls import Certificates

PHONE = device("fcm", "fcm-token-of-a-phone")
NOW = 1_800_000_000_000


@asynccontextmanager
async def sending(
    made: Certificates, terms: Terms, **options: Any
) -> AsyncIterator[tuple[PlayedFcm, Fcm, ManualClock]]:
    clock = ManualClock(NOW)
    async with playing(PlayedFcm(clock), made) as fcm:
        sender = Fcm(read_account(fcm.account()), terms, clock, url=fcm.url, **options)
        try:
            yield fcm, sender, clock
        finally:
            await sender.close()


async def test_a_notification_is_sent_as_google_documents_it(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        assert await sender.send(PHONE, payload(collapse="lobby", expires_at=NOW + 90_500)) == SendResult("sent")
        (message,) = fcm.taken
    assert message.token == PHONE.token
    assert message.data == {
        "key": "n1.phone",
        "id": "n1",
        "seq": "7",
        "kind": "message",
        "created_at": "1700000000000",
        "body": BODY.decode(),
    }
    assert message.notification is not None
    assert (message.notification.title, message.notification.body) == ("Mia", "Are you there?")
    assert (message.android.priority, message.android.ttl) == ("HIGH", "90s")
    assert message.android.collapse_key == "lobby"
    assert message.android.notification is not None
    assert message.android.notification.tag == "lobby"


async def test_without_words_to_show_the_app_gets_ids(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        await sender.send(PHONE, payload(title=None, text=None, body=None, importance="low"))
        (message,) = fcm.taken
    assert (message.notification, message.android.notification) == (None, None)
    assert message.android.priority == "NORMAL"
    assert "body" not in message.data


async def test_sent_twice_it_is_shown_once(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        await sender.send(PHONE, payload())
        await sender.send(PHONE, payload())
    assert {message.android.notification.tag for message in fcm.taken if message.android.notification} == {"n1.phone"}
    assert [message.android.collapse_key for message in fcm.taken] == [None, None]  # FCM keeps only four of them


async def test_what_is_too_long_goes_without_its_body_or_with_ids_only(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        long = Raw(json.dumps({"title": "Mia", "more": "x" * 5_000}).encode())
        assert (await sender.send(PHONE, payload(body=long))).outcome == "sent"
        assert (await sender.send(PHONE, payload(body=long, text="y" * 5_000))).outcome == "sent"
    first, second = fcm.taken
    assert "body" not in first.data
    assert first.notification is not None
    assert (second.notification, second.data["id"]) == (None, "n1")


async def test_one_connection_and_one_access_token_serve_many(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        await asyncio.gather(*(sender.send(PHONE, payload(key=f"k{n}")) for n in range(300)))
        assert len(fcm.keys) == 300
        assert len(fcm.granted) == 1
        assert fcm.connected == 2  # one of them to the token server


@pytest.mark.parametrize(
    ("answer", "outcome", "is_away", "reason"),
    [
        (refusal(404, "NOT_FOUND", "UNREGISTERED"), "gone", False, "UNREGISTERED"),
        (refusal(400, "INVALID_ARGUMENT", field="message.token", message="no"), "gone", False, "INVALID_ARGUMENT"),
        (refusal(400, "INVALID_ARGUMENT", field="message.data[0]"), "refused", False, "INVALID_ARGUMENT"),
        (refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", message="Message too big"), "refused", False, "400"),
        (refusal(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), "refused", False, "SENDER_ID_MISMATCH"),
        (refusal(404, "NOT_FOUND", message="no such project"), "refused", False, "404 NOT_FOUND"),
        (refusal(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"), "failed", True, "THIRD_PARTY_AUTH_ERROR"),
        (refusal(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), "failed", True, "QUOTA_EXCEEDED"),
        (refusal(500, "INTERNAL"), "failed", True, "500 INTERNAL"),
        (Answer(502, b"<html>Bad gateway</html>"), "failed", True, "502"),
        (Answer(404, b"not json"), "refused", False, "404"),
        (Answer(302, b"", {"location": "https://elsewhere.example/"}), "refused", False, "302"),
    ],
)
async def test_what_an_answer_means(
    made: Certificates, terms: Terms, answer: Answer, outcome: str, is_away: bool, reason: str
) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        fcm.script.append(answer)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == (outcome, is_away), sent
        assert reason in sent.reason
        assert PHONE.token not in sent.reason
        assert len(fcm.asked) == 1


async def test_the_real_answers_about_devices_that_are_no_more(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        fcm.gone.add(PHONE.token)
        assert (await sender.send(PHONE, payload())).outcome == "gone"
        assert (await sender.send(device("fcm", "bad-token"), payload())).outcome == "gone"
        assert fcm.taken == []


@pytest.mark.parametrize(
    ("status", "said", "wait_s"),
    [
        (429, "30", 30.0),
        (503, "Fri, 15 Jan 2027 08:01:00 GMT", 60.0),
        (503, "Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        (503, "99999999", 900.0),
        (429, "soon", 0.0),
        (429, "-3", 0.0),
    ],
)
async def test_how_long_to_wait_is_obeyed(
    made: Certificates, terms: Terms, status: int, said: str, wait_s: float
) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        fcm.script.append(refusal(status, "UNAVAILABLE", retry_after=said))
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away, sent.wait_s) == ("failed", True, wait_s)


@pytest.mark.parametrize("does", ["hang", "reset", "slow", "lost"])
async def test_no_answer_is_a_failure_of_the_provider(made: Certificates, terms: Terms, does: Any) -> None:
    terms.timeout_s = 1.0
    async with sending(made, terms) as (fcm, sender, _):
        fcm.script.append(does)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == ("failed", True)
        assert (await sender.send(PHONE, payload())).outcome == "sent"
        assert fcm.keys == {"n1.phone": 2 if does == "lost" else 1}


# --- access tokens ---


async def test_an_access_token_that_is_not_taken_is_replaced_once(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (fcm, sender, _):
        await sender.send(PHONE, payload())
        fcm.granted.update(dict.fromkeys(fcm.granted, 0.0))
        sent = await asyncio.gather(*(sender.send(PHONE, payload(key=f"k{n}")) for n in range(10)))
        assert {one.outcome for one in sent} == {"sent"}
        assert len(fcm.granted) == 2
        fcm.behave = lambda asked: refusal(401, "UNAUTHENTICATED")
        before = len(fcm.asked)
        sent_no = await sender.send(PHONE, payload())
        assert (sent_no.outcome, sent_no.is_away, len(fcm.asked) - before) == ("failed", True, 2)


async def test_an_access_token_is_renewed_before_it_expires_without_delaying_a_push(
    made: Certificates, terms: Terms
) -> None:
    async with sending(made, terms) as (fcm, sender, clock):
        await sender.send(PHONE, payload())
        clock.advance(3_290)
        await sender.send(PHONE, payload())
        assert len(fcm.granted) == 1
        clock.advance(15)
        await sender.send(PHONE, payload())
        await until(lambda: len(fcm.granted) == 2)
        clock.advance(3_000)
        await sender.send(PHONE, payload())
        assert len(fcm.granted) == 2
        assert len(fcm.taken) == 4


async def test_while_the_token_server_is_away_the_old_token_is_used_to_its_end(
    made: Certificates, terms: Terms
) -> None:
    async with sending(made, terms) as (fcm, sender, clock):
        await sender.send(PHONE, payload())
        fcm.grants += [Answer(503)] * 3
        clock.advance(3_400)
        assert (await sender.send(PHONE, payload())).outcome == "sent"
        await until(lambda: len(fcm.grants) == 2)
        assert (await sender.send(PHONE, payload())).outcome == "sent"  # the token is not requested again at once
        clock.advance(250)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == ("failed", True)
        assert "no access token" in sent.reason
        fcm.grants.clear()
        assert (await sender.send(PHONE, payload())).outcome == "sent"


@pytest.mark.parametrize(
    "granted",
    [
        Answer.json(400, {"error": "invalid_grant"}),
        Answer.json(200, {"access_token": "with\r\nX-Evil: yes", "expires_in": 3600}),
        Answer.json(200, {"expires_in": 3600}),
        Answer(200, b"<html>"),
        "hang",
    ],
)
async def test_no_access_token_no_push(made: Certificates, terms: Terms, granted: Any) -> None:
    terms.timeout_s = 1.0
    async with sending(made, terms) as (fcm, sender, _):
        fcm.grants.append(granted)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == ("failed", True)
        assert "Evil" not in sent.reason
        assert fcm.asked == []


async def test_nothing_secret_is_logged(made: Certificates, terms: Terms, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with sending(made, terms) as (fcm, sender, _):
        await sender.send(PHONE, payload())
        fcm.script.append(refusal(400, "INVALID_ARGUMENT", message=f"no such token {PHONE.token}"))
        sent = await sender.send(PHONE, payload())
        for secret in (*fcm.granted, PHONE.token, "Are you there?"):
            assert secret not in caplog.text
            assert secret not in sent.reason
