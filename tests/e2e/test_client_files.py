"""JavaScript client that every server serves: types, caching, compression, and the setting that turns it off."""

from __future__ import annotations

import gzip

import pytest

from e2e.processes import Answer, ask
from greendot import __version__
from greendot.http.client_files import FILES, WEB
from greendot.testing import serving


@pytest.mark.parametrize("dev", [False, True], ids=["production", "dev"])
async def test_every_server_serves_its_client_to_pages_of_all_origins(dev: bool) -> None:
    async with serving(server={"dev": dev}) as served:
        for name, kind in FILES.items():
            for path, caching in ((f"/{name}", "no-cache"), (f"/greendot/{__version__}/{name}", "immutable")):
                answer = await ask(served.port, "GET", path, Origin="https://app.example.com")
                assert (answer.status, answer.body) == (200, (WEB / name).read_bytes()), path
                assert answer.headers["content-type"] == kind
                assert answer.headers["access-control-allow-origin"] == "*"
                assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert caching in answer.headers["cache-control"]
        module = await ask(served.port, "GET", "/greendot.js")
        assert module.headers["x-typescript-types"] == "./greendot.d.ts"


async def test_a_browser_that_has_the_file_gets_304_until_the_file_changes() -> None:
    async with serving() as served:

        async def again(tag: str, **headers: str) -> Answer:
            return await ask(served.port, "GET", "/greendot.js", If_None_Match=tag, **headers)

        first = await ask(served.port, "GET", "/greendot.js")
        tag = first.headers["etag"]
        for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            same = await again(sent)
            assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag), sent
            assert same.headers["access-control-allow-origin"] == "*"
        for sent in ('"other"', tag.strip('"'), ""):
            assert (await again(sent)).status == 200, sent
        # The compressed file has a tag of its own: a cache must not mix the two.
        assert (await again(tag, Accept_Encoding="gzip")).status == 200


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("br, gzip; q=0.0", False),
        ("", False),
    ],
)
async def test_it_is_compressed_for_clients_that_accept_it(accepted: str, packed: bool) -> None:
    async with serving() as served:
        answer = await ask(served.port, "GET", "/greendot.js", Accept_Encoding=accepted)
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert answer.headers["vary"] == "accept-encoding"
    body = gzip.decompress(answer.body) if packed else answer.body
    assert body == (WEB / "greendot.js").read_bytes()
    assert not packed or len(answer.body) < 12_500


async def test_another_version_and_an_unknown_file_are_not_there_and_the_answer_has_the_right_path() -> None:
    async with serving() as served:
        other = await ask(served.port, "GET", "/greendot/9.9.9/greendot.js")
        assert other.status == 404
        assert f"/greendot/{__version__}/greendot.js" in other.json()["detail"]
        unknown = await ask(served.port, "GET", f"/greendot/{__version__}/app.js")
        assert unknown.status == 404
        assert "greendot.js" in unknown.json()["detail"]
        for path in ("/app.js", "/index.html", f"/greendot/{__version__}/../index.html"):
            assert (await ask(served.port, "GET", path)).status == 404, path


async def test_a_head_request_has_the_headers_and_no_body() -> None:
    async with serving() as served:
        answer = await ask(served.port, "HEAD", "/greendot.js")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str((WEB / "greendot.js").stat().st_size)


async def test_an_operator_can_turn_it_off_but_the_demo_keeps_it() -> None:
    for dev, status in ((False, 404), (True, 200)):
        async with serving(server={"dev": dev}, api={"client": False}) as served:
            for path in ("/greendot.js", "/greendot.d.ts", f"/greendot/{__version__}/greendot.js"):
                assert (await ask(served.port, "GET", path)).status == status
