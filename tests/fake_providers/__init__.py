"""Push providers, played by real servers: they check what they get as the real ones do, and answer like them.

`async with playing(PlayedFcm(), certificates(tmp_path)) as fcm: …` — then `fcm.url`, and `fcm.taken` is what it took.
What it does with the next requests is put into `script`; `behave` decides about each otherwise.
"""

from __future__ import annotations

from fake_providers.apns import PlayedApns
from fake_providers.fcm import PlayedFcm
from fake_providers.requests import Answer, Asked, Does
from fake_providers.server import Played, playing, until
from fake_providers.webhook import PlayedApp
from fake_providers.webpush import PlayedWebPush

__all__ = [
    "Answer",
    "Asked",
    "Does",
    "Played",
    "PlayedApns",
    "PlayedApp",
    "PlayedFcm",
    "PlayedWebPush",
    "playing",
    "until",
]
