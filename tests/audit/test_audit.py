"""`make audit`: versions, ranges, the committed copy, and its refresh from folders and from a service."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from audit import copy
from audit.__main__ import main
from audit.inventory import ROOT, Use, npm, npm_locks, pinned, uses
from audit.osv import BadAdvisory, Package, concerns, fixes, order, reduced
from audit.report import report

DOCUMENTS = Path(__file__).parent / "documents"
TODAY = date(2026, 11, 18)
NEWEST = date(2025, 2, 10)  # newest change of a document
STARLETTE, WS, ESBUILD = Package("PyPI", "starlette"), Package("npm", "ws"), Package("npm", "esbuild")
WANTED = {STARLETTE, WS, ESBUILD, Package("PyPI", "httptools")}


def document(name: str) -> Any:
    return json.loads((DOCUMENTS / f"{name}.json").read_text())


def used(package: Package, version: str) -> Use:
    return Use(package, version, "some.lock")


def made(*folders: Path) -> copy.Copy:
    return copy.refreshed(WANTED, TODAY, folders or [DOCUMENTS])


# --- versions and ranges ---


@pytest.mark.parametrize(
    ("ecosystem", "versions"),
    [
        ("PyPI", ["0.9", "0.24.0", "0.25.0rc1", "0.25", "0.25.0.post1", "0.100", "1!0.1"]),
        ("npm", ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-rc.2", "1.0.0-rc.11", "1.0.0", "1.9.0"]),
        ("npm", ["1.9.0", "1.10.0-0", "1.10.0+build.5", "10.0.0"]),
    ],
)
def test_versions_are_sorted_as_their_ecosystem_sorts_them(ecosystem: str, versions: list[str]) -> None:
    assert sorted({*versions}, key=lambda version: order(ecosystem, version)) == versions


@pytest.mark.parametrize(
    ("name", "package", "hit", "missed"),
    [
        ("GHSA-74m5-2c7w-9w3x", STARLETTE, ["0.1.0", "0.24.9", "0.25.0rc1"], ["0.25.0", "0.40.0"]),
        ("GHSA-3h5v-q93c-6h6q", WS, ["5.2.3", "6.0.0", "7.5.9", "8.17.0"], ["2.0.3", "5.2.4", "7.5.10", "8.17.1"]),
        ("GHSA-67mh-4wv8-2f99", ESBUILD, ["0.1.0", "0.24.2"], ["0.24.3", "0.25.0"]),
    ],
)
def test_an_advisory_concerns_the_versions_of_its_ranges(
    name: str, package: Package, hit: list[str], missed: list[str]
) -> None:
    for advisory in (document(name), reduced(document(name), WANTED)):
        assert [version for version in hit + missed if concerns(advisory, package, version)] == hit
        assert not concerns(advisory, Package("npm", "starlette"), hit[0])


def test_a_version_that_cannot_be_compared_counts_as_hit() -> None:
    assert concerns(document("GHSA-67mh-4wv8-2f99"), ESBUILD, "latest")


def test_versions_that_fix_a_vulnerability_are_named_in_their_order() -> None:
    assert fixes(document("GHSA-3h5v-q93c-6h6q"), WS) == ["5.2.4", "6.2.3", "7.5.10", "8.17.1"]
    assert fixes(document("GHSA-67mh-4wv8-2f99"), ESBUILD) == []


# --- inventory ---


def test_all_lock_files_of_the_project_are_read_and_the_environment() -> None:
    listed = subprocess.run(["git", "ls-files", "*package-lock.json"], cwd=ROOT, capture_output=True, check=True)
    assert {str(path.relative_to(ROOT)) for path in npm_locks()} == {*listed.stdout.decode().split()}
    places = {use.place for use in uses()}
    assert {"environment", "clients/package-lock.json", "deploy/image/base.txt"} <= places
    assert {Package("PyPI", "starlette"), Package("npm", "esbuild")} <= {use.package for use in uses()}
    assert not [use for use in uses() if "greendot" in use.package.name]


def test_links_aliases_and_nested_packages_of_a_lock_file() -> None:
    lock = {
        "": {"version": "1.0.0"},
        "js": {"version": "1.0.0"},
        "node_modules/@greendot/client": {"link": True, "resolved": "js"},
        "node_modules/old-ws": {"name": "ws", "version": "7.5.9"},
        "js/node_modules/a/node_modules/@b/c": {"version": "2.0.0"},
    }
    found = {(use.package, use.version) for use in npm(json.dumps({"packages": lock}), "x")}
    assert found == {(WS, "7.5.9"), (Package("npm", "@b/c"), "2.0.0")}


def test_exact_versions_of_requirements_are_read() -> None:
    text = "# a==1\nDjango==5.2.19\npsycopg[binary]==3.2 ; os_name == 'x'\nuvloop==0.23.0 \\\n    --hash=sha256:1\nb>=2"
    assert [(use.package.name, use.version) for use in pinned(text, "x")] == [
        ("django", "5.2.19"),
        ("psycopg", "3.2"),
        ("uvloop", "0.23.0"),
    ]


# --- report ---


def test_a_vulnerable_version_fails_once_unless_it_is_explained() -> None:
    uses_ = [used(STARLETTE, "0.24.0"), used(WS, "8.18.0")]
    lines, failed = report(made(), uses_, TODAY)
    assert failed
    assert lines[0] == "starlette (PyPI) 0.24.0 in some.lock: GHSA-74m5-2c7w-9w3x, fixed in 0.25.0: NOT EXPLAINED"
    assert lines[-1].endswith("1 known vulnerabilities, 1 not explained")
    for name in ("GHSA-74m5-2c7w-9w3x", "CVE-2023-30798"):
        lines, failed = report(made(), uses_, TODAY, {name: "no form is read"})
        assert not failed
        assert lines[0].endswith("no form is read")


def test_versions_without_a_vulnerability_pass_and_an_unused_explanation_is_named() -> None:
    lines, failed = report(made(), [used(STARLETTE, "0.40.0"), used(ESBUILD, "0.28.0")], NEWEST, {"CVE-1": "old"})
    assert not failed
    assert lines == [
        "→ no advisory has the explained id CVE-1; remove it",
        "→ 2 of 2 used versions audited with 4 advisories of 2025-02-10: 0 known vulnerabilities, 0 not explained",
    ]


def test_a_package_that_the_sources_were_not_searched_for_is_named() -> None:
    lines, failed = report(made(), [used(Package("npm", "left-pad"), "1.0.0")], TODAY)
    assert not failed
    assert "→ not in the copy, not audited: left-pad (npm); run: make audit REFRESH=1" in lines


@pytest.mark.parametrize(("days", "warned"), [(0, False), (90, False), (91, True)])
def test_an_old_copy_is_a_warning(days: int, warned: bool) -> None:
    lines, failed = report(made(), [used(STARLETTE, "0.40.0")], NEWEST + timedelta(days))
    assert not failed
    assert any("91 days old (at most 90)" in line for line in lines) is warned


# --- copy ---


def test_a_copy_has_the_facts_about_the_packages_and_none_of_the_text() -> None:
    found = {advisory["id"]: advisory for advisory in made().advisories}
    assert found.keys() == {"GHSA-74m5-2c7w-9w3x", "PYSEC-2023-48", "GHSA-3h5v-q93c-6h6q", "GHSA-67mh-4wv8-2f99"}
    assert found["PYSEC-2023-48"] == {
        "id": "PYSEC-2023-48",
        "aliases": ["CVE-2023-30798"],
        "modified": "2023-05-02T15:15:00Z",
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": "starlette"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0.25.0"}]}],
            }
        ],
    }
    assert "Test document" not in json.dumps(made().advisories)


def test_a_listed_version_outside_of_the_ranges_stays_listed() -> None:
    advisory = document("GHSA-74m5-2c7w-9w3x")
    advisory["affected"][0]["versions"].append("0.26.0")
    assert reduced(advisory, WANTED)["affected"][0]["versions"] == ["0.26.0"]  # type: ignore[index]
    assert concerns(reduced(advisory, WANTED) or {}, STARLETTE, "0.26.0")


def test_a_copy_of_folders_is_as_old_as_the_oldest_of_them(tmp_path: Path) -> None:
    assert made().as_of == NEWEST
    older = json.dumps(document("GHSA-67mh-4wv8-2f99") | {"modified": "2024-10-09T08:00:00Z"})
    (tmp_path / "older.json").write_text(older)
    assert made(DOCUMENTS, tmp_path).as_of == date(2024, 10, 9)
    (tmp_path / "older.json").write_text(older.replace("2024-10-09T", "soon"))
    with pytest.raises(copy.Unreadable, match="no date"):
        made(tmp_path)


def test_a_copy_is_written_and_read_and_the_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    paths = tmp_path / "one.json", tmp_path / "two.json"
    for path in paths:
        copy.write(made(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    again = copy.read(paths[0])
    assert again.packages == WANTED
    assert again.sources == ["documents"]
    assert again.advisories == sorted(made().advisories, key=lambda advisory: advisory["id"])


@pytest.mark.parametrize("text", ["", "[]", '{"as_of": "soon"}', '{"as_of": "2026-11-18", "packages": {}}'])
def test_a_copy_that_cannot_be_read_is_an_error_with_the_remedy(text: str, tmp_path: Path) -> None:
    (tmp_path / "copy.json").write_text(text)
    with pytest.raises(copy.Unreadable, match="make audit REFRESH=1"):
        copy.read(tmp_path / "copy.json")


def test_the_committed_copy_states_its_date_and_sources() -> None:
    found = copy.read()
    assert found.as_of <= date.today() + timedelta(1)  # it is a day of UTC
    if not found.sources:
        assert (found.packages, found.advisories) == (set(), [])
        lines, failed = report(found, [used(STARLETTE, "0.24.0")], TODAY)
        assert not failed
        assert "no source could be reached" in lines[0]
        assert lines[-1].startswith("→ 0 of 1 used versions audited with 0 advisories")


def test_an_audit_needs_no_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the audit opened a connection")

    monkeypatch.delenv("REFRESH", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert main() == 0
    assert "used versions audited" in capsys.readouterr().out


# --- refresh ---


@contextmanager
def osv(documents: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Serve documents in the API of OSV, one a page. Yield the address, and the queries."""
    queries: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            queries.append(query)
            hits = [each for each in documents if query["package"] in [one["package"] for one in each["affected"]]]
            at = int(query.get("page_token", 0))
            more = {"next_page_token": str(at + 1)} if at + 1 < len(hits) else {}
            body = json.dumps({"vulns": hits[at : at + 1], **more} if hits else {}).encode()
            self.send_response(200 if self.path == "/v1/query" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", queries
        finally:
            server.shutdown()
            thread.join()


def test_the_service_is_asked_for_every_package_and_every_page() -> None:
    documents = [document(path.stem) for path in sorted(DOCUMENTS.glob("*.json"))]
    with osv(documents) as (address, queries):
        found = copy.refreshed(WANTED, TODAY, service=address)
    assert {advisory["id"] for advisory in found.advisories} == {
        "GHSA-74m5-2c7w-9w3x",
        "GHSA-3h5v-q93c-6h6q",
        "GHSA-67mh-4wv8-2f99",
    }
    assert (found.sources, found.packages, found.as_of) == ([address], WANTED, TODAY)
    asked = {(query["package"]["ecosystem"], query["package"]["name"]) for query in queries}
    assert asked == {tuple(package) for package in WANTED}
    assert [query["page_token"] for query in queries if "page_token" in query] == ["1"]  # starlette has two


def test_a_service_that_cannot_be_reached_or_answers_otherwise_is_an_error() -> None:
    with osv([]) as (address, _), pytest.raises(copy.Unreadable, match="404"):
        copy.refreshed({WS}, TODAY, service=f"{address}/elsewhere")
    with pytest.raises(copy.Unreadable, match="the copy stays as it was"):
        copy.refreshed({WS}, TODAY, service=address)


def test_folders_and_documents_that_are_no_advisories_are_errors(tmp_path: Path) -> None:
    with pytest.raises(copy.Unreadable, match="there is no folder"):
        made(tmp_path / "absent")
    with pytest.raises(copy.Unreadable, match=r"has no \.json"):
        made(tmp_path)
    for text, fault in (("{", "cannot be read"), ("[]", "without an `id`"), ('{"id": "a", "affected": 5}', "format")):
        (tmp_path / "some.json").write_text(text)
        with pytest.raises(copy.Unreadable, match=fault):
            made(tmp_path)
    with pytest.raises(BadAdvisory, match="GHSA"):
        reduced({"id": "GHSA-1", "affected": [{"package": {"ecosystem": "npm"}}]}, WANTED)
