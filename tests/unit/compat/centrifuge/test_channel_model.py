"""Channel names and their rooms, namespaces and rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.compat.centrifuge.channel_model import (
    Namespaces,
    Rules,
    channel_of,
    needs_token,
    opens,
    room_of,
    users_of,
)
from greendot.ids import valid_id

SAMPLES = [
    ("lobby", "lobby"),
    ("a.b@c=d+e-f", "a.b@c=d+e-f"),
    ("news:42", "news=3A42"),
    ("$secret", "_=24secret"),
    ("_$secret", "_=5F=24secret"),
    ("_plain", "_plain"),
    (".hidden", "_=2Ehidden"),
    ("-x", "_=2Dx"),
    ("=x", "_=3Dx"),
    ("a=3Ab", "a=3D3Ab"),
    ("dialog#42,43", "dialog=2342=2C43"),
    ("größe", "gr=C3=B6=C3=9Fe"),
    ("_", "_"),
    ("_=3A", "_=5F=3D3A"),
]


@pytest.mark.parametrize(("channel", "room"), SAMPLES)
def test_a_channel_has_the_room_of_its_name(channel: str, room: str) -> None:
    assert room_of(channel) == room
    assert channel_of(room) == channel


@given(st.text(max_size=60))
def test_every_channel_is_found_again_from_its_room(channel: str) -> None:
    room = room_of(channel)
    if room is not None:
        assert valid_id(room)
        assert channel_of(room) == channel


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}", fullmatch=True))
def test_a_room_without_escapes_is_the_channel_of_its_name(room: str) -> None:
    assert room_of(room) == room
    assert channel_of(room) == room


@given(st.lists(st.text("ab_=:$3A.", min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
def test_two_channels_never_share_a_room(channels: list[str]) -> None:
    one, two = map(room_of, channels)
    assert one != two


@pytest.mark.parametrize("channel", ["", "x" * 129, "ü" * 22, "x" * 256, "\ud800"])
def test_names_that_fit_no_room_have_none(channel: str) -> None:
    assert room_of(channel) is None


def test_names_of_the_greatest_length_fit() -> None:
    assert room_of("x" * 128) == "x" * 128
    assert room_of("ü" * 21) is not None


def test_a_room_that_no_channel_has_still_has_a_name() -> None:
    assert channel_of("a=FF") == "a\ufffd"


def test_without_namespaces_all_channels_have_the_defaults_and_create_no_rooms() -> None:
    namespaces = Namespaces({})
    assert namespaces.rules("news:42") == namespaces.rules("news") == Rules(creates=False, declared=False)
    assert Namespaces({}, creates=True).rules("news") == Rules(declared=False)


def test_a_declared_namespace_opens_the_rooms_of_its_channels() -> None:
    namespaces = Namespaces({"news": Rules()})
    assert opens("news:1", Rules())
    plain = namespaces.rules("board")
    assert plain is not None
    assert not opens("board", plain)
    assert not any(opens(name, Rules()) for name in ("private-x", "presence-x", "$x", "x#ann"))
    assert not opens("news:1", Rules(subscribe=False))


def test_a_namespace_has_its_rules_and_others_are_unknown() -> None:
    own, default = Rules(publish=False), Rules(history=False)
    namespaces = Namespaces({"news": own, "default": default})
    assert namespaces.rules("news:42") is own
    assert namespaces.rules("$news:42") is own
    assert namespaces.rules("plain") is default
    assert namespaces.rules("other:42") is None


def test_private_channels_and_strict_namespaces_need_a_token() -> None:
    assert needs_token("$a", Rules())
    assert needs_token("a", Rules(subscribe=False))
    assert not needs_token("a", Rules())


def test_a_name_may_limit_the_users() -> None:
    assert users_of("dialog#42,43") == {"42", "43"}
    assert users_of("a#b#c") == {"c"}
    assert users_of("dialog#") == {""}
    assert users_of("dialog") is None
