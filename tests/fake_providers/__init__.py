"""Fake push providers on real servers. They validate requests and answer as the real providers do.

`async with playing(PlayedFcm(), certificates(tmp_path)) as fcm: …` gives `fcm.url`, and `fcm.taken` lists the accepted
requests. `script` sets the behaviour for the next requests, and `behave` decides about all others.
"""

from __future__ import annotations

from fake_providers.apns import PlayedApns
from fake_providers.fcm import PlayedFcm
from fake_providers.requests import Answer, Asked, Does
from fake_providers.server import Played, playing, until
from fake_providers.webhook import PlayedApp
from fake_providers.webpush import PlayedWebPush, VapidKey, vapid_key

__all__ = [
    "Answer",
    "Asked",
    "Does",
    "Played",
    "PlayedApns",
    "PlayedApp",
    "PlayedFcm",
    "PlayedWebPush",
    "VapidKey",
    "playing",
    "until",
    "vapid_key",
]
