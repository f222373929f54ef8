"""Push webhook of an app: signed requests with the push and the device, under a constant key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fake_providers import Answer, PlayedApp, playing
from fake_providers.webhook import SECRET
from greendot.push.payload import SendResult
from greendot.push.providers.webhook import PushWebhook
from greendot.testing import ManualClock
from greendot.transport.http_client import Terms
from push_payloads import BODY, device, payload
from redis_servers.tls import Certificates

PHONE = device("webhook", "anything: it is handed through")


@asynccontextmanager
async def sending(made: Certificates, terms: Terms, *secrets: str) -> AsyncIterator[tuple[PlayedApp, PushWebhook]]:
    clock = ManualClock()
    async with playing(PlayedApp(clock), made) as app:
        sender = PushWebhook(f"{app.url}/push?to=secret", secrets or (SECRET,), terms, clock)
        try:
            yield app, sender
        finally:
            await sender.close()


async def test_the_app_gets_everything_it_needs(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms, "the next secret", SECRET) as (app, sender):
        assert await sender.send(PHONE, payload(collapse="lobby", expires_at=9)) == SendResult("sent")
        assert app.asked[0].path == "/push?to=secret"
    assert app.taken == [
        {
            "tenant": "default",
            "user": "ada",
            "device": "phone",
            "token": PHONE.token,
            "notification": {
                "key": "n1.phone",
                "id": "n1",
                "seq": 7,
                "kind": "message",
                "created_at": 1_700_000_000_000,
                "title": "Mia",
                "text": "Are you there?",
                "body": json.loads(BODY),
            },
            "importance": "normal",
            "collapse": "lobby",
            "expires_at": 9,
        }
    ]


@pytest.mark.parametrize(
    ("does", "outcome", "is_away"),
    [
        (Answer(202), "sent", False),
        (Answer(410), "gone", False),
        (Answer(400), "refused", False),
        (Answer(422), "refused", False),
        (Answer(401), "failed", True),
        (Answer(404), "failed", True),
        (Answer(302), "failed", True),
        (Answer(429, b"", {"retry-after": "7"}), "failed", True),
        (Answer(500), "failed", True),
        ("reset", "failed", True),
        ("hang", "failed", True),
    ],
)
async def test_what_an_answer_means(made: Certificates, terms: Terms, does: Any, outcome: str, is_away: bool) -> None:
    terms.timeout_s = 1.0
    async with sending(made, terms) as (app, sender):
        app.script.append(does)
        sent = await sender.send(PHONE, payload())
        assert (sent.outcome, sent.is_away) == (outcome, is_away)
        assert sent.wait_s == (7 if isinstance(does, Answer) and does.status == 429 else 0)
        assert "secret" not in sent.reason


async def test_another_secret_is_not_taken(made: Certificates, terms: Terms) -> None:
    async with sending(made, terms, "another secret") as (app, sender):
        assert (await sender.send(PHONE, payload())).outcome == "failed"
        assert app.taken == []
