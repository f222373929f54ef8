"""Web Push: payloads that browsers decrypt, requests as the RFCs require, and the meaning of the responses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from msgspec import Raw

from fake_providers import Answer, PlayedWebPush, playing
from greendot.push.payload import SendResult
from greendot.push.providers.signing import new_vapid_key
from greendot.push.providers.webpush import MOST_SERVICES, Vapid, WebPush
from greendot.push.providers.webpush_subscription import read_subscription
from greendot.store.push import Device
from greendot.testing import ManualClock
from greendot.transport.http_client import Terms
from push_payloads import BODY, device, payload
from redis_servers.tls import Certificates

NOW = 1_800_000_000_000
PRIVATE, PUBLIC = new_vapid_key()


@asynccontextmanager
async def sending(
    made: Certificates, terms: Terms
) -> AsyncIterator[tuple[PlayedWebPush, WebPush, Device, ManualClock]]:
    clock = ManualClock(NOW)
    async with playing(PlayedWebPush(clock), made) as service:
        sender = WebPush(Vapid(PRIVATE, "mailto:ops@app.example", clock), terms, clock)
        try:
            yield service, sender, device("webpush", service.subscribe(PUBLIC)), clock
        finally:
            await sender.close()


async def test_a_browser_reads_it_with_another_implementation(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (service, sender, browser, _):
        given = payload(collapse="lobby", expires_at=NOW + 90_500, importance="critical")
        assert await sender.send(browser, given) == SendResult("sent")
        (taken,) = service.taken
    assert taken.content == {
        "key": "n1.phone",
        "id": "n1",
        "seq": 7,
        "kind": "message",
        "created_at": 1_700_000_000_000,
        "title": "Mia",
        "text": "Are you there?",
        "body": json.loads(BODY),
        "collapse": "lobby",
        "importance": "critical",
    }
    assert (taken.headers["ttl"], taken.headers["urgency"]) == ("90", "high")
    assert len(taken.headers["topic"]) == 32
    assert "lobby" not in str(taken.headers)
    assert b"Mia" not in service.asked[0].body


async def test_without_an_end_or_a_collapse_key(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (service, sender, browser, _):
        await sender.send(browser, payload(importance="low"))
        (taken,) = service.taken
    assert (taken.headers["ttl"], taken.headers["urgency"]) == (str(28 * 86_400), "low")
    assert "topic" not in taken.headers


async def test_a_vapid_token_of_half_a_day_is_reused_and_each_service_gets_its_own(
    made: Certificates, terms: Terms
) -> None:
    async with sending(made, terms) as (service, sender, browser, clock):
        for _ in range(25):
            assert (await sender.send(browser, payload())).outcome == "sent"
            clock.advance(3_600)
    said = {asked.headers["authorization"] for asked in service.asked}
    assert len(said) == 5
    claims = jwt.decode(next(iter(said)).split("t=")[1].split(",")[0], options={"verify_signature": False})
    assert set(claims) == {"aud", "exp", "sub"}
    vapid = Vapid(PRIVATE, "mailto:x", clock)
    for n in range(3 * MOST_SERVICES):
        vapid.header(f"https://{n}.example")
    assert len(vapid._tokens) <= MOST_SERVICES


async def test_what_is_too_long_goes_without_its_body_or_with_ids_only(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (service, sender, browser, _):
        long = Raw(json.dumps({"more": "x" * 5_000}).encode())
        await sender.send(browser, payload(body=long))
        await sender.send(browser, payload(body=long, text="y" * 5_000))
        service.most_bytes = 220  # less than the RFC requires
        assert (await sender.send(browser, payload())).outcome == "sent"
        service.most_bytes = 100
        assert (await sender.send(browser, payload())).outcome == "refused"
    first, second, third = service.taken
    assert (first.content["title"], "body" in first.content) == ("Mia", False)
    assert "title" not in second.content
    assert "title" not in third.content


@pytest.mark.parametrize(
    ("answer", "outcome", "is_away"),
    [
        (Answer(200), "sent", False),
        (Answer(404), "gone", False),
        (Answer(410), "gone", False),
        (Answer(400), "refused", False),
        (Answer(403), "refused", False),
        (Answer(307, b"", {"location": "http://127.0.0.1/"}), "refused", False),
        (Answer(429, b"", {"retry-after": "8"}), "failed", True),
        (Answer(500), "failed", True),
        (Answer(503), "failed", True),
    ],
)
async def test_what_an_answer_means(
    made: Certificates, terms: Terms, answer: Answer, outcome: str, is_away: bool
) -> None:
    async with sending(made, terms) as (service, sender, browser, _):
        service.script.append(answer)
        sent = await sender.send(browser, payload())
        assert (sent.outcome, sent.is_away) == (outcome, is_away)
        assert sent.wait_s == (8 if answer.status == 429 else 0)
        assert "secret" not in sent.reason


@pytest.mark.parametrize("does", ["hang", "reset", "slow"])
async def test_no_answer_is_a_failure_of_that_service(made: Certificates, terms: Terms, does: Any) -> None:
    terms.timeout_s = 1.0
    async with sending(made, terms) as (service, sender, browser, _):
        service.script.append(does)
        sent = await sender.send(browser, payload())
        assert (sent.outcome, sent.is_away) == ("failed", True)
        assert "secret" not in sent.reason
        assert (await sender.send(browser, payload())).outcome == "sent"


async def test_who_unsubscribed_is_gone(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (service, sender, browser, _):
        service.gone.add("/push/0-secret")
        assert (await sender.send(browser, payload())).outcome == "gone"


def subscription(endpoint: str = "https://push.example/x", **keys: str) -> str:
    good = {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    }
    return json.dumps({"endpoint": endpoint, "keys": good | keys})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "0x7f000001"])
async def test_no_browser_can_make_the_server_call_an_internal_host(host: str) -> None:
    clock = ManualClock()
    sender = WebPush(Vapid(PRIVATE, "mailto:x", clock), Terms(timeout_s=1, listed_in="push.allow_private"), clock)
    try:
        sent = await sender.send(device("webpush", subscription(f"https://{host}/secret")), payload())
    finally:
        await sender.close()
    if sent.outcome != "failed":  # this machine may not resolve such a name
        assert (sent.outcome, sent.is_away) == ("refused", False)
        assert "push.allow_private" in sent.reason
    assert "secret" not in sent.reason


@pytest.mark.parametrize(
    "token",
    [
        *("", "x", "[]", "{}", '{"endpoint":"https://push.example/x"}'),
        *('{"more":' + "[" * 4_000 + "]" * 4_000 + "}", '{"more":' + "[" * 4_000),
        *(subscription(""), subscription("http://push.example/x"), subscription("https:///x")),
        *(subscription("https://user:pw@push.example/x"), subscription("https://push.example/ x")),
        *(subscription("https://push.example:99999/x"), subscription("https://push.example/x\r\nA: b")),
        *(subscription("https://push.example/" + "x" * 2_000), subscription("https://bücher.example/x")),
        *(
            subscription("file:///etc/passwd"),
            subscription("https://push.example\\@inside/"),
            subscription("https://[::1"),
        ),
        *(subscription(auth="AAAA"), subscription(p256dh="AAAA")),
    ],
)
async def test_an_invalid_subscription_is_refused_and_not_sent_to(made: Certificates, terms: Terms, token: str) -> None:
    with pytest.raises(ValueError, match=r"subscription|PushSubscription|endpoint"):
        read_subscription(token)
    async with sending(made, terms) as (_, sender, _, _):
        assert sender.place(device("webpush", token)) is not None
        assert (await sender.send(device("webpush", token), payload())).outcome == "gone"


async def test_many_browsers_of_one_service_share_connections(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms) as (service, sender, _, _):
        browsers = [device("webpush", service.subscribe(PUBLIC)) for _ in range(60)]
        sent = await asyncio.gather(*(sender.send(browser, payload()) for browser in browsers))
        assert {one.outcome for one in sent} == {"sent"}
        assert service.connected <= 20
        assert len({taken.path for taken in service.taken}) == 60


async def test_nothing_secret_is_logged(made: Certificates, terms: Terms, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with sending(made, terms) as (service, sender, browser, _):
        await sender.send(browser, payload())
        await sender.send(browser, payload())
        auth = json.loads(browser.token)["keys"]["auth"]
        for secret in ("-secret", auth, PRIVATE, "Are you there?", service.asked[0].headers["authorization"]):
            assert secret not in caplog.text
