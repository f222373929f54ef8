"""Registration of push devices: unusable tokens are refused with the expected format."""

from __future__ import annotations

import json

import pytest

from greendot.push.devices import check_token
from greendot.store.push import MOST_TOKEN, Provider

KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}
GOOD: list[tuple[Provider, str]] = [
    ("fcm", "cFm:APA91b-_x"),
    ("apns", "a1B2" * 16),
    ("webhook", "whatever they like, ünïcode too"),
    ("webpush", json.dumps({"endpoint": "https://push.example/x", "expirationTime": None, "keys": KEYS})),
]
BAD: list[tuple[Provider, str, str]] = [
    ("fcm", "", "1 to 4096"),
    ("webhook", "x" * (MOST_TOKEN + 1), "1 to 4096"),
    ("fcm", "with space", "ASCII"),
    ("fcm", "tökén", "ASCII"),
    ("apns", "not hex", "hexadecimal"),
    ("apns", "abc", "hexadecimal"),
    ("webpush", "https://push.example/x", "PushSubscription"),
    ("webpush", json.dumps({"endpoint": "http://push.example/x", "keys": KEYS}), "https"),
]


@pytest.mark.parametrize(("provider", "token"), GOOD)
def test_what_providers_give_out_is_taken(provider: Provider, token: str) -> None:
    check_token(provider, token)


@pytest.mark.parametrize(("provider", "token", "said"), BAD)
def test_an_invalid_device_token_is_refused_with_the_reason(provider: Provider, token: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_token(provider, token)
