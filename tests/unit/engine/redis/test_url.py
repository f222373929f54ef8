"""Where Redis is, as an operator writes it."""

from __future__ import annotations

import pytest

from greendot.engine.redis.url import Address, parse, without_login
from greendot.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis://localhost", [("localhost", 6379)]),
        ("rediss://[::1]:7000/3", [("::1", 7000)]),
        ("redis+sentinel://a,b:1/main", [("a", 26379), ("b", 1)]),
        ("redis+cluster://ann:hush@a:1,b", [("a", 1), ("b", 6379)]),
    ],
)
def test_hosts_have_the_port_that_is_usual_for_them(url: str, hosts: list[tuple[str, int]]) -> None:
    assert parse(url).hosts == tuple(Address(*host) for host in hosts)


def test_a_login_may_hold_any_character_if_it_is_escaped() -> None:
    place = parse("redis://an%40n:p%2Fw%3F%23:@localhost/2")
    assert (place.user, place.password, place.db) == ("an@n", "p/w?#:", 2)
    assert parse("redis://:p@ss@localhost").password == "p@ss"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://", "HOST"),
        ("redis://localhost:port", "HOST:PORT"),
        ("redis://localhost:65536", "HOST:PORT"),
        ("redis://[::1", "IPv6"),
        ("redis://localhost/first", "'first'"),
        ("redis://a,b", "redis+cluster://"),
        ("redis+sentinel://a", "name of the primary"),
        ("redis+cluster://a/1", "numbered databases"),
        ("redis://a?ca=/ca.pem", "rediss"),
        ("rediss://a?password=x", "'password'"),
        ("rabbit://a", "redis://"),
    ],
)
def test_what_cannot_be_meant_is_explained(url: str, word: str) -> None:
    with pytest.raises(ConfigError, match=r"^engine\.url: ") as refused:
        parse(url)
    assert word in str(refused.value)


@pytest.mark.parametrize("mark", ["/", "?", "#", "/1?", "?ca=", "@x/"])
def test_no_part_of_an_unescaped_password_is_repeated(mark: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"redis://ann:hush{mark}silence@localhost")
    for part in ("hush", "silence", "ann"):
        assert part not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory", "memory"),
        ("redis://localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://:hush@localhost", "redis://localhost"),
        ("redis+sentinel://ann:hush@a,b:1/main/2", "redis+sentinel://a,b:1/main/2"),
        ("rediss+cluster://ann:hu@sh@a:1,b:2?ca=/ca@2.pem", "rediss+cluster://a:1,b:2?ca=/ca@2.pem"),
    ],
)
def test_a_url_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert without_login(url) == shown
