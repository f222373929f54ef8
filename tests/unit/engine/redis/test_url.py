"""URLs of Redis in the settings."""

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
        ("rediss+cluster://[fe80::1],[fe80::2]:7000", [("fe80::1", 6379), ("fe80::2", 7000)]),
        ("rediss+sentinel://ann@[::1],b/main/4", [("::1", 26379), ("b", 26379)]),
        ("unix:///run/redis.sock", [("/run/redis.sock", 0)]),
        ("redis+unix://ann:hush@/run/a%20b.sock?db=3", [("/run/a b.sock", 0)]),
    ],
)
def test_hosts_have_the_port_that_is_usual_for_them(url: str, hosts: list[tuple[str, int]]) -> None:
    assert parse(url).hosts == tuple(Address(*host) for host in hosts)


@pytest.mark.parametrize(
    ("url", "kind", "tls", "service", "db"),
    [
        ("redis://h", "standalone", False, "", 0),
        ("rediss://h/15/", "standalone", True, "", 15),
        ("redis+sentinel://h/main", "sentinel", False, "main", 0),
        ("rediss+sentinel://h/main/2", "sentinel", True, "main", 2),
        ("redis+cluster://h/", "cluster", False, "", 0),
        ("rediss+cluster://h", "cluster", True, "", 0),
        ("unix:///run/redis.sock?db=7", "standalone", False, "", 7),
    ],
)
def test_the_scheme_and_the_path_determine_the_kind_of_server_tls_and_database(
    url: str, kind: str, tls: bool, service: str, db: int
) -> None:
    place = parse(url)
    assert (place.kind, place.tls, place.service, place.db) == (kind, tls, service, db)
    assert (place.context() is not None) == tls


def test_an_address_is_shown_as_it_would_be_written() -> None:
    assert [str(host) for host in parse("redis+cluster://[::1],h:1").hosts] == ["[::1]:6379", "h:1"]


@pytest.mark.parametrize("login", ["", "ann@", ":@", "ann:@"])
def test_without_a_password_there_is_none(login: str) -> None:
    place = parse(f"redis://{login}h")
    assert (place.user, place.password) == ("ann" if "ann" in login else None, None)


def test_files_of_tls_that_cannot_be_used_are_named() -> None:
    place = parse("rediss://h?ca=/no/ca.pem&cert=/no/cert.pem&key=/no/key.pem")
    assert place.files == {"ca": "/no/ca.pem", "cert": "/no/cert.pem", "key": "/no/key.pem"}
    with pytest.raises(ConfigError, match=r"/no/ca\.pem"):
        place.context()


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
        ("redis+cluster://[::1],[::2", "IPv6"),
        ("redis+cluster://[::1],[h]x:1", "HOST:PORT"),
        ("redis://localhost/first", "'first'"),
        ("redis://a,b", "redis+cluster://"),
        ("redis+sentinel://a", "name of the primary"),
        ("redis+cluster://a/1", "numbered databases"),
        ("redis://a?ca=/ca.pem", "rediss"),
        ("rediss://a?password=x", "'password'"),
        ("rabbit://a", "redis://"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix:///", "three slashes"),
        ("unix:///redis.sock?db=first", "'first'"),
        ("unix:///redis.sock?ca=x", "'ca'"),
    ],
)
def test_what_cannot_be_meant_is_explained(url: str, word: str) -> None:
    with pytest.raises(ConfigError, match=r"^engine\.url ") as refused:
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
        ("redis+cluster://ann:hush@[::1],[fe80::2]:7000", "redis+cluster://[::1],[fe80::2]:7000"),
        ("rediss+cluster://ann:hu@sh@a:1,b:2?ca=/ca@2.pem", "rediss+cluster://a:1,b:2?ca=/ca@2.pem"),
        ("unix://ann:hush@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_a_url_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert without_login(url) == shown
