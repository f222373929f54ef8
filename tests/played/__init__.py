"""Push providers, played by real servers: they check what they get as the real ones do, and answer like them.

`async with playing(PlayedFcm(), certificates(tmp_path)) as fcm: …` — then `fcm.url`, and `fcm.taken` is what it took.
What it does with the next requests is put into `script`; `behave` decides about each otherwise.
"""

from __future__ import annotations

from played.apns import PlayedApns
from played.fcm import PlayedFcm
from played.requests import Answer, Asked, Does
from played.server import Played, playing, until
from played.webhook import PlayedApp
from played.webpush import PlayedWebPush

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
