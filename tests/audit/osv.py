"""Advisories in the format of OSV: which versions of a package they concern, and the part of them that a copy keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ECOSYSTEMS = ("PyPI", "npm")
Advisory = dict[str, Any]
_SEMVER = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class BadAdvisory(Exception):
    """A document is not an advisory in the format of OSV. The text names the document and the fault."""


class Package(NamedTuple):
    """Package of an ecosystem. Names of PyPI are in the form of its index."""

    ecosystem: str
    name: str

    @classmethod
    def of(cls, ecosystem: str, name: str) -> Package:
        return cls(ecosystem, canonicalize_name(name) if ecosystem == "PyPI" else name)

    def __str__(self) -> str:
        return f"{self.name} ({self.ecosystem})"


def order(ecosystem: str, version: str) -> Any:
    """Return a key that sorts versions of the ecosystem. Raise ValueError for a text that is no version."""
    if ecosystem == "PyPI":
        try:
            return Version(version)
        except InvalidVersion as error:
            raise ValueError(str(error)) from None
    found = _SEMVER.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is no version of npm")
    # A release comes after its pre-releases; a number in a pre-release comes before a word.
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in (found[4] or "").split(".")]
    return tuple(int(found[at]) for at in (1, 2, 3)), found[4] is None, parts if found[4] else []


def concerns(advisory: Advisory, package: Package, version: str) -> bool:
    """Return whether a version is listed or in a range of the advisory. A range that cannot be read counts as hit."""
    for affected in _of(advisory, package):
        if version in affected.get("versions", ()):
            return True
        for one in _ranges(affected):
            try:
                if _within(one["events"], package.ecosystem, version):
                    return True
            except ValueError:
                return True
    return False


def _within(events: list[dict[str, str]], ecosystem: str, version: str) -> bool:
    own = order(ecosystem, version)
    inside = False
    for kind, at in _sorted(events, ecosystem):
        reached = at is None or own >= at
        if kind == "introduced" and reached:
            inside = True
        elif (kind == "fixed" and reached) or (kind == "last_affected" and reached and own != at):
            inside = False
    return inside


def _sorted(events: list[dict[str, str]], ecosystem: str) -> list[tuple[str, Any]]:
    """Return kind and version of each event in ascending order. None is before all versions."""
    pairs = [(kind, text) for event in events for kind, text in event.items() if kind != "limit"]
    first = [(kind, None) for kind, text in pairs if text == "0"]
    return first + sorted(
        ((kind, order(ecosystem, text)) for kind, text in pairs if text != "0"), key=lambda pair: pair[1]
    )


def fixes(advisory: Advisory, package: Package) -> list[str]:
    """Return the versions that fix the vulnerability, in the order of the advisory."""
    events = [event for each in _of(advisory, package) for one in _ranges(each) for event in one["events"]]
    return list(dict.fromkeys(event["fixed"] for event in events if "fixed" in event))


def names(advisory: Advisory) -> set[str]:
    """Return the id and the aliases."""
    return {advisory["id"], *advisory.get("aliases", ())}


def packages(advisory: Advisory) -> Iterator[Package]:
    """Yield the packages of PyPI and npm that the advisory concerns."""
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") in ECOSYSTEMS:
            yield Package.of(package["ecosystem"], package["name"])


def reduced(advisory: Advisory, wanted: set[Package]) -> Advisory | None:
    """Return id, aliases, date and versions for the wanted packages: facts, and none of the text of the advisory.

    Return None if the advisory is withdrawn or concerns none of the packages. Raise BadAdvisory for another document.
    """
    if not isinstance(advisory, dict) or not isinstance(advisory.get("id"), str):
        raise BadAdvisory("a document without an `id` is no advisory")
    try:
        return _reduced(advisory, wanted)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadAdvisory(f"{advisory['id']} is no advisory in the format of OSV: {error!r}") from None


def _reduced(advisory: Advisory, wanted: set[Package]) -> Advisory | None:
    concerned = sorted(wanted.intersection(packages(advisory)))
    if advisory.get("withdrawn") or not concerned:
        return None
    affected = []
    for package in concerned:
        ranges = [
            {"type": one["type"], "events": one["events"]} for each in _of(advisory, package) for one in _ranges(each)
        ]
        listed = [version for each in _of(advisory, package) for version in each.get("versions", ())]
        entry = {"package": {"ecosystem": package.ecosystem, "name": package.name}, "ranges": ranges}
        # Most lists of versions repeat the ranges, and are ten times as long.
        rest = [version for version in listed if not concerns({"affected": [entry]}, package, version)]
        affected.append(entry | ({"versions": rest} if rest else {}))
    return {
        "id": advisory["id"],
        "aliases": sorted(advisory.get("aliases", ())),
        "modified": str(advisory.get("modified", "")),
        "affected": affected,
    }


def _of(advisory: Advisory, package: Package) -> Iterator[dict[str, Any]]:
    for affected in advisory.get("affected", ()):
        named = affected.get("package", {})
        if "name" in named and Package.of(named.get("ecosystem", ""), named["name"]) == package:
            yield affected


def _ranges(affected: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ranges of versions; those of commits are left out."""
    return [one for one in affected.get("ranges", ()) if one.get("type") in ("ECOSYSTEM", "SEMVER")]
