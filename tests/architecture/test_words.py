"""Retired words are not used as names. docs/glossary.md has the current words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from .sources import ROOT, Module, modules, offences

# Retired word: its replacement.
RETIRED = {
    "barring": "hidden watchers",
    "curtain": "room view",
    "doorstep": "ingress policy",
    "face": "visible state",
    "gateway": "transport, node or connect",
    "granting": "token refresh",
    "headcount": "connection limits",
    "household": "address group",
    "intake": "dispatch",
    "letter": "entry or row",
    "onlooker": "dashboard socket",
    "parcel": "payload",
    "reception": "admission",
    "regarding": "visibility updates",
    "renewing": "refresh",
    "seating": "session rooms",
    "sights": "visibility",
    "seat": "session entry, member",
    "seats": "sessions, members",
    "speaking": "messages",
    "survey": "cluster query",
    "tallies": "usage",
    "urge": "redeliver",
    "urged": "pending_acks",
    "urging": "redelivery",
    "veil": "visibility exceptions",
    "witness": "event recorder",
}
# Names that are part of a contract, or use the word in another meaning.
KEPT = {
    ("config.checks", "ascii_letters"),  # of the alphabet
    ("engine.redis.presence", "letter"),
    ("engine.redis.record_codec", "letter"),
    ("ids", "letters"),
}


@cache
def names(module: Module) -> frozenset[str]:
    return frozenset(_names(module))


def _names(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


# Most names contain none of the words and need not be split.
SUSPECT = re.compile("|".join(RETIRED), re.IGNORECASE)


def words(name: str) -> set[str]:
    """Split a name: `_ReadLetters` and `read_letters` contain read and letter."""
    found = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())
    return {*found, *(word.removesuffix("s") for word in found)}


def test_no_name_has_a_retired_word() -> None:
    def retired(module: Module) -> set[str]:
        own = {*names(module), *module.name.split(".")}
        suspects = {name for name in own if SUSPECT.search(name)}
        return {name for name in suspects if words(name) & RETIRED.keys() and (module.name, name) not in KEPT}

    assert offences(retired) == {}


# Folders and files to check, and exceptions: this file, and recordings of old versions.
ELSEWHERE = (
    "tests",
    "docs",
    "bench",
    "examples",
    "clients/js/src",
    "clients/react/src",
    "clients/vue/src",
    "clients/server/src",
    "CONTRIBUTING.md",
    "README.md",
)
EXCEPT = ("tests/architecture/test_words.py", "tests/fixtures/", "docs/adr/", "bench/build/")
# Words that have another meaning in plain English or in the field.
PLAIN = {"face", "gateway", "letter", "speaking", "regarding", "survey", "witness", "granting", "reception", "intake"}


def test_no_test_page_or_client_has_a_retired_word() -> None:
    retired = re.compile(rf"(?<![a-z])({'|'.join(sorted(RETIRED.keys() - PLAIN))})s?(?![a-z])", re.IGNORECASE)
    files = [path for place in ELSEWHERE for path in ([ROOT / place] if "." in place else (ROOT / place).rglob("*"))]
    found = {}
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        is_ours = not name.startswith(EXCEPT) and "node_modules" not in path.parts
        if path.suffix in {".py", ".md", ".ts", ".tsx", ".flow"} and is_ours:
            words = {word.lower() for word in retired.findall(path.read_text())} | set(retired.findall(path.stem))
            if words:
                found[name] = words
    assert found == {}


def test_every_kept_name_is_still_there() -> None:
    there = {(module.name, name) for module in modules() for name in names(module)}
    assert there >= KEPT
