from __future__ import annotations

import pytest

from greendot.transport.request_head import (
    BAD_CODING,
    BAD_HOST,
    BAD_REQUEST,
    BAD_TARGET,
    BAD_VERSION,
    NO_TUNNEL,
    Field,
    Refusal,
    RequestRefused,
    joined,
    read_head,
    tokens,
)

HOST: list[Field] = [(b"host", b"example.com")]


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/a/b?c=d", b"/a/b", b"c=d"),
        (b"/a?b?c", b"/a", b"b?c"),
        (b"//a", b"//a", b""),
        (b"/%41", b"/%41", b""),
        (b"/a?", b"/a", b""),
    ],
)
def test_an_origin_form_is_split(target: bytes, path: bytes, query: bytes) -> None:
    head = read_head(b"GET", "1.1", target, HOST)
    assert (head.path, head.query, head.by_name[b"host"]) == (path, query, b"example.com")


@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        (b"http://a.example", b"a.example", b"/"),
        (b"http://a.example/x", b"a.example", b"/x"),
        (b"HTTPS://a.example:8443/x?y", b"a.example:8443", b"/x"),
        (b"http://[::1]:80/x", b"[::1]:80", b"/x"),
    ],
)
def test_the_host_of_an_absolute_form_replaces_the_header(target: bytes, host: bytes, path: bytes) -> None:
    head = read_head(b"GET", "1.1", target, [(b"a", b"b"), *HOST])
    assert (head.path, head.by_name[b"host"]) == (path, host)
    assert [value for name, value in head.fields if name == b"host"] == [host]
    assert (b"a", b"b") in head.fields


TARGETS = [
    b"",
    b"a",
    b"*",
    b"/a#b",
    b"/a b",
    b"/\xe9",
    b"/a\x00",
    b"ftp://a/",
    b"http://",
    b"http:///a",
    b"http://a@b/",
]


@pytest.mark.parametrize("target", [*TARGETS, b"http://a:b/", b"http://a/#c", b"/a?b#c"])
def test_any_other_target_is_refused(target: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_head(b"GET", "1.1", target, HOST)
    assert caught.value.refusal == BAD_TARGET


def test_an_asterisk_is_for_options() -> None:
    assert read_head(b"OPTIONS", "1.1", b"*", HOST).path == b"*"


@pytest.mark.parametrize("host", [b"a", b"a:80", b"a:", b"a_b.c-d", b"127.0.0.1", b"[::1]", b"[::1]:80", b""])
def test_a_valid_host_is_accepted(host: bytes) -> None:
    assert read_head(b"GET", "1.1", b"/", [(b"host", host)]).by_name[b"host"] == host


@pytest.mark.parametrize("host", [b"a b", b"a,b", b"a/b", b"a@b", b"a:b", b"[::1", b"::1", b"a\xe9", b"http://a"])
def test_any_other_host_is_refused(host: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_head(b"GET", "1.1", b"/", [(b"host", host)])
    assert caught.value.refusal == BAD_HOST


@pytest.mark.parametrize(
    ("method", "version", "fields", "refusal"),
    [
        (b"GET", "1.1", [], BAD_HOST),
        (b"GET", "1.1", HOST * 2, BAD_HOST),
        (b"GET", "1.0", HOST * 2, BAD_HOST),
        (b"GET", "2.0", HOST, BAD_VERSION),
        (b"GET", "0.9", HOST, BAD_VERSION),
        (b"CONNECT", "1.1", HOST, NO_TUNNEL),
        (b"POST", "1.1", [*HOST, (b"transfer-encoding", b"gzip, chunked")], BAD_CODING),
        (b"POST", "1.1", [*HOST, (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")], BAD_CODING),
        (b"POST", "1.0", [(b"transfer-encoding", b"chunked")], BAD_REQUEST),
    ],
)
def test_a_head_that_breaks_the_rfc_is_refused(
    method: bytes, version: str, fields: list[Field], refusal: Refusal
) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_head(method, version, b"/", fields)
    assert caught.value.refusal == refusal


def test_http_1_0_needs_no_host() -> None:
    assert read_head(b"GET", "1.0", b"/", []).by_name == {}


@pytest.mark.parametrize(
    ("field", "has_body"),
    [
        ((b"content-length", b"0"), False),
        ((b"content-length", b"00"), False),
        ((b"content-length", b"5"), True),
        ((b"transfer-encoding", b"Chunked"), True),
        ((b"x", b"y"), False),
    ],
)
def test_a_body_is_announced(field: Field, has_body: bool) -> None:
    assert read_head(b"POST", "1.1", b"/", [*HOST, field]).has_body is has_body


def test_a_field_that_is_there_twice_is_a_list() -> None:
    assert joined([(b"a", b" 1 "), (b"b", b"2"), (b"a", b"3\t")]) == {b"a": b"1, 3", b"b": b"2"}
    assert tokens(b"Keep-Alive ,\tUPGRADE") == [b"keep-alive", b"upgrade"]
