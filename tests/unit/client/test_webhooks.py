"""Verification of webhook requests by an app."""

from __future__ import annotations

import time

import msgspec
import pytest

from greendot.client import BadWebhook, ClientError, verify_webhook
from greendot.protocol.webhooks import signature

SECRET = "a secret that is long enough for a test"
BODY = (
    b'{"id":"d1","sent_at":5,"events":[{"id":"e1","type":"room.message","tenant":"t","at":4,"data":{"seq":7}}],"new":1}'
)


def test_what_was_sent_is_read() -> None:
    found = verify_webhook(BODY, signature([SECRET], 100, BODY), SECRET, 100)
    assert (found.id, found.sent_at) == ("d1", 5)
    (event,) = found.events
    assert (event.id, event.type, event.tenant, event.at) == ("e1", "room.message", "t", 4)
    assert msgspec.json.decode(event.data) == {"seq": 7}


def test_a_webhook_is_verified_at_the_current_time_by_default() -> None:
    now = int(time.time())
    assert verify_webhook(BODY, signature([SECRET], now, BODY), SECRET).id == "d1"
    with pytest.raises(BadWebhook, match="too old"):
        verify_webhook(BODY, signature([SECRET], now - 1000, BODY), SECRET)


def test_what_others_sent_is_refused() -> None:
    with pytest.raises(ClientError, match="the signature does not match"):
        verify_webhook(BODY, signature(["another"], 100, BODY), SECRET, 100)


DEEP = b"[" * 1_000_000 + b"]" * 1_000_000  # deeper than any stack allows
UNREADABLE = {
    "nothing": b"",
    "a list": b"[]",
    "no fields": b"{}",
    "not UTF-8": b"\xff",
    "another type": b'{"id":1,"sent_at":2,"events":[]}',
    "deep": b'{"id":"1","sent_at":2,"events":[{"id":"e","type":"x","tenant":"t","at":1,"data":' + DEEP + b"}]}",
    "deep in a field of the future": b'{"id":"1","sent_at":2,"events":[],"more":' + DEEP + b"}",
    "deep without an end": b"[" * 50_000,
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_signed_and_cannot_be_read_is_refused_too(body: bytes) -> None:
    with pytest.raises(BadWebhook, match="cannot read"):
        verify_webhook(body, signature([SECRET], 100, body), SECRET, 100)
