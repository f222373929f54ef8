"""Which version of an event a client is sent.

A client says at hello which versions it reads (`supports`); for what it does not mention, version 1 is meant.
There is one version of every event so far; the choice is made here when there are more.
"""

from __future__ import annotations

PROTOCOL_VERSION = 1


def reads(supports: dict[str, list[int]], event: str, version: int = 1) -> bool:
    """Whether a client that declared `supports` can show `event` in `version`."""
    versions = supports.get(event)
    return version == 1 if versions is None else version in versions
