"""Names of channels: each stands for one room, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.compat.pusher.channel_model import channel_of, parse_channel
from greendot.ids import valid_id


@pytest.mark.parametrize(
    ("name", "kind", "room", "caches"),
    [
        ("news", "public", "news", False),
        ("cache-news", "public", "cache-news", True),
        ("private-a", "private", "private-a", False),
        ("private-cache-a", "private", "private-cache-a", True),
        ("private-encrypted-a", "encrypted", "private-encrypted-a", False),
        ("private-encrypted-cache-a", "encrypted", "private-encrypted-cache-a", True),
        ("presence-a.1@x=y", "presence", "presence-a.1@x=y", False),
        ("presence-cache-a", "presence", "presence-cache-a", True),
        ("a,b;c", "public", "a+cb+sc", False),
        ("#server-to-user-ann", "user", "ann", False),
    ],
)
def test_a_prefix_decides_the_kind(name: str, kind: str, room: str, caches: bool) -> None:
    channel = parse_channel(name)
    assert channel is not None
    assert (channel.kind, channel.room, channel.caches) == (kind, room, caches)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "ä", "#x", "-a", ".a", "a" * 129, "a\n", "#server-to-user-", "a/b"])
def test_a_name_that_no_room_can_have_is_refused(name: str) -> None:
    assert parse_channel(name) is None


@given(st.text(alphabet="abcXYZ019_-=@,.;", min_size=1, max_size=60))
def test_a_room_leads_back_to_its_channel(name: str) -> None:
    channel = parse_channel(name)
    if channel is not None:
        assert valid_id(channel.room)
        assert channel_of(channel.room) == name
