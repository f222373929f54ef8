"""Fake of a tenant's own push app."""

from __future__ import annotations

from typing import Any

import msgspec

from fake_providers.requests import Answer, Asked
from fake_providers.server import Played
from greendot.protocol.webhooks import BadSignature, check_signature

SECRET = "the secret of a push webhook, for tests only"


class PlayedApp(Played):
    """App server. Tokens in `gone` are unregistered."""

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock)
        self.gone: set[str] = set()

    def real(self, asked: Asked) -> Answer:
        try:
            check_signature(asked.body, asked.headers["greendot-signature"], SECRET, self.now_s())
        except (BadSignature, KeyError):
            return Answer(401)
        request = msgspec.json.decode(asked.body)
        if request["token"] in self.gone:
            return Answer(410)
        if asked.headers["idempotency-key"] != request["notification"]["key"]:
            return Answer(400)
        self.take(request["notification"]["key"], request)
        return Answer(204)
