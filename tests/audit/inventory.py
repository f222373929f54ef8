"""Packages that the project locks or installs: each with its version and the place that requires it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from audit.osv import Package

ROOT = Path(__file__).parents[2]
OWN = re.compile(r"greendot(-speedups)?|@greendot/.+")
PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


class Use(NamedTuple):
    """Version of a package, and the file that locks it, or `environment` for an installed one."""

    package: Package
    version: str
    place: str


def uses(root: Path = ROOT) -> list[Use]:
    """Return every version that is locked in a file, or installed in this environment, without Greendot's own."""
    found = {*_installed()}
    for path in npm_locks(root):
        found.update(npm(path.read_text(), str(path.relative_to(root))))
    for path in requirement_files(root):
        found.update(pinned(path.read_text(), str(path.relative_to(root))))
    return sorted(use for use in found if not OWN.fullmatch(use.package.name))


def npm_locks(root: Path = ROOT) -> list[Path]:
    """Return the lock files of npm: of the clients, the examples and the tests."""
    return [root / "clients" / "package-lock.json", *sorted(root.glob("[et]*s/*/package-lock.json"))]


def requirement_files(root: Path = ROOT) -> list[Path]:
    """Return the lock files of pip: of the image, and of the servers that the bench compares."""
    return [*sorted(root.glob("deploy/image/*.txt")), *sorted(root.glob("bench/peers/requirements.txt"))]


def npm(lock: str, place: str) -> Iterator[Use]:
    """Yield the packages of a package-lock.json, without links and workspaces."""
    for key, entry in json.loads(lock)["packages"].items():
        _, installed, name = key.rpartition("node_modules/")
        if installed and not entry.get("link") and "version" in entry:
            yield Use(Package.of("npm", entry.get("name", name)), entry["version"], place)


def pinned(requirements: str, place: str) -> Iterator[Use]:
    """Yield the packages of a file of requirements that have an exact version."""
    for name, version in PINNED.findall(requirements):
        yield Use(Package.of("PyPI", name), version, place)


def _installed() -> Iterator[Use]:
    for one in distributions():
        yield Use(Package.of("PyPI", one.metadata["Name"]), one.version, "environment")
