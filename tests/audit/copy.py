"""Committed copy of advisories: the file, its age, and how it is written again from a service or from folders."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from audit.osv import Advisory, BadAdvisory, Package, reduced

PATH = Path(__file__).with_name("advisories.json")
SERVICE = "https://api.osv.dev"
OLD_DAYS = 90
ANSWER_S = 30
AT_ONCE = 8  # requests


class Unreadable(Exception):
    """The copy or a source of advisories cannot be read. The text has the reason and the next step."""


class Copy(NamedTuple):
    """Advisories about the packages that the sources were searched for. Without sources the copy has none.

    `as_of` is the day of a service, and the newest date in folders: a clone may be much older than the copy.
    """

    as_of: date
    sources: list[str]
    packages: set[Package]
    advisories: list[Advisory]

    def warnings(self, today: date) -> list[str]:
        """Return the reasons not to rely on the copy."""
        if not self.sources:
            return [
                f"the copy of {self.as_of} has no advisories, because no source could be reached when it was made; on "
                "a machine with a network run: make audit REFRESH=1"
            ]
        age = (today - self.as_of).days
        if age > OLD_DAYS:
            return [f"the copy of advisories is {age} days old (at most {OLD_DAYS}); run: make audit REFRESH=1"]
        return []


def read(path: Path = PATH) -> Copy:
    """Read the copy. Raise Unreadable."""
    try:
        found = json.loads(path.read_text())
        packages = {Package(ecosystem, name) for ecosystem, some in found["packages"].items() for name in some}
        return Copy(date.fromisoformat(found["as_of"]), found["sources"], packages, found["advisories"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Unreadable(
            f"the copy of advisories, {path}, cannot be read: {error!r}. Restore it from git, or run: "
            "make audit REFRESH=1"
        ) from None


def write(copy: Copy, path: Path = PATH) -> None:
    """Write the copy with one advisory a line, so that a change is readable."""
    packages: dict[str, list[str]] = {}
    for package in sorted(copy.packages):
        packages.setdefault(package.ecosystem, []).append(package.name)
    head = {"as_of": copy.as_of.isoformat(), "sources": copy.sources, "packages": packages}
    lines = [f"  {json.dumps(each, sort_keys=True)}" for each in sorted(copy.advisories, key=lambda one: one["id"])]
    listed = "[\n" + ",\n".join(lines) + "\n ]" if lines else "[]"
    path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "advisories": {listed}\n}}\n')


# --- sources ---


def refreshed(packages: set[Package], today: date, folders: Iterable[Path] = (), service: str = SERVICE) -> Copy:
    """Return a new copy: from folders with documents, or from the service if there are none. Raise Unreadable."""
    folders = [*folders]
    found: dict[str, Advisory] = {}
    days = [today]
    for documents in map(_of_folder, folders) if folders else [_of_service(packages, service)]:
        newest = ""
        for document in documents:
            try:
                advisory = reduced(document, packages)
            except BadAdvisory as error:
                raise Unreadable(f"{error}; the copy stays as it was") from None
            newest = max(newest, str(document.get("modified", "")))
            if advisory is not None:
                found[advisory["id"]] = advisory
        if folders:
            days.append(_day(newest))
    sources = [folder.resolve().name for folder in folders] or [service]
    return Copy(min(days), sources, packages, [*found.values()])


def _day(modified: str) -> date:
    try:
        return date.fromisoformat(modified[:10])
    except ValueError:
        raise Unreadable(
            f"the newest `modified` of a folder is {modified!r}, which is no date; the copy stays as it was"
        ) from None


def _of_folder(folder: Path) -> Iterator[Any]:
    """Yield the documents of a folder, such as a clone of a database of advisories."""
    if not folder.is_dir():
        raise Unreadable(f"there is no folder {folder}; set ADVISORIES to folders with documents of OSV")
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".yaml")]
    if not files:
        raise Unreadable(f"the folder {folder} has no .json or .yaml files; set ADVISORIES to documents of OSV")
    for path in files:
        try:
            text = path.read_text()
            loaded = json.loads(text) if path.suffix == ".json" else yaml.load(text, _Loader)  # noqa: S506
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise Unreadable(f"{path} cannot be read: {error}; the copy stays as it was") from None
        yield loaded


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loader that keeps dates as text, as JSON has them."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in _Loader.yaml_implicit_resolvers.items()
}


def _of_service(packages: set[Package], service: str) -> Iterator[Any]:
    """Yield the documents that the service has about each package."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for documents in pool.map(lambda package: [*_asked(package, service)], sorted(packages)):
            yield from documents


def _asked(package: Package, service: str) -> Iterator[Any]:
    query: dict[str, Any] = {"package": {"ecosystem": package.ecosystem, "name": package.name}}
    while True:
        request = urllib.request.Request(
            f"{service}/v1/query", json.dumps(query).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                page = json.load(answer)
                documents = page.get("vulns", [])
        except (urllib.error.URLError, OSError, ValueError, AttributeError) as error:
            raise Unreadable(
                f"{service} cannot be read about {package}: {error}; the copy stays as it was. Use a network, or set "
                "ADVISORIES to a folder with documents of OSV"
            ) from None
        yield from documents
        if not (token := page.get("next_page_token")):
            return
        query["page_token"] = token
