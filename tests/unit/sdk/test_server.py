"""`greendot.Server` in an app's backend: fast to import, silent about its secrets, strict about webhooks."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

import greendot
from greendot import Server
from greendot.client import verify_webhook
from greendot.errors import BadWebhook
from greendot.protocol.webhooks import signature

from .plays import Said, in_turn, playing

SECRET = "the secret of a webhook, for tests only"
BODY = b'{"id":"d1","sent_at":1,"events":[{"id":"e","type":"ping","tenant":"default","at":1,"data":{}}]}'


def test_the_package_itself_stays_light() -> None:
    program = (
        "import sys, greendot; print('greendot.sdk' in sys.modules, 'httpx2' in sys.modules)\n"
        "from greendot import Server; print('greendot.sdk' in sys.modules, 'picows' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["False", "False", "True", "False"]
    assert not hasattr(greendot, "Serve")


def test_what_is_printed_of_a_server_shows_no_secret() -> None:
    with Server("http://h:8000/", "the-key", secret="the-secret" * 4, webhook_secret="the-hook") as server:
        shown = repr(server) + str(vars(server)) + str(vars(server._http))
    assert repr(server) == "Server('http://h:8000')"
    assert "the-" not in shown


def hooked() -> Server:
    return Server("http://h", webhook_secret=SECRET)


@pytest.mark.parametrize("name", ["Greendot-Signature", "greendot-signature", "GREENDOT-SIGNATURE"])
def test_a_webhook_is_known_by_its_signature_however_the_headers_are_given(name: str) -> None:
    header = signature([SECRET], int(time.time()), BODY)
    for headers in ({name: header, "Host": "h"}, header):
        assert [event.type for event in hooked().verify_webhook(BODY, headers).events] == ["ping"]


def old() -> str:
    return signature([SECRET], int(time.time()) - 400, BODY)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "no Greendot-Signature"),
        ({"Greendot-Signature": ""}, "no Greendot-Signature"),
        (signature(["another"], int(time.time()), BODY), "the signature does not match"),
        (old(), "too old"),
        (signature([SECRET], int(time.time()) + 4_000, BODY), "too old or from the future"),
    ],
)
def test_what_is_not_signed_by_greendot_about_now_is_refused(headers: Any, said: str) -> None:
    with pytest.raises(BadWebhook, match=said):
        hooked().verify_webhook(BODY, headers)


def test_a_changed_webhook_body_is_refused_and_an_old_one_accepted_only_with_a_longer_tolerance() -> None:
    with pytest.raises(BadWebhook, match="exactly as received"):
        hooked().verify_webhook(BODY + b" ", signature([SECRET], int(time.time()), BODY))
    assert hooked().verify_webhook(BODY, old(), tolerance_s=1000).id == "d1"


def test_without_a_secret_nothing_is_believed() -> None:
    with pytest.raises(BadWebhook, match="no secret"):
        Server("http://h").verify_webhook(BODY, signature([""], int(time.time()), BODY))


def test_the_client_raises_the_webhook_error_of_the_server() -> None:
    with pytest.raises(BadWebhook):
        verify_webhook(BODY, "", SECRET)


@pytest.mark.parametrize("odd", ["../nodes", "a/b", "", "a?b", "a b", "ä", ".", "..", "x" * 129, "a\n"])
def test_an_id_that_is_none_never_becomes_a_path(odd: str) -> None:
    with playing(in_turn(Said())) as stage:
        server = stage.server()
        calls: list[Any] = [server.room, server.sessions, server.disconnect, server.inbox, server.messages]
        for call in calls:
            with pytest.raises(ValueError, match="is not a valid id"):
                call(odd)
        for pair in (server.add_member, server.remove_member, server.add_contact, server.remove_contact):
            with pytest.raises(ValueError, match="is not a valid id"):
                pair("good", odd)
        assert stage.asked == []
