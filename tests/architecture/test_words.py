"""Words that the field does not use are not used as names. docs/glossary.md has the words that are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .sources import ROOT, Module, modules, offences

# Retired word: the word in its place.
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
    "speaking": "messages",
    "survey": "cluster query",
    "tallies": "usage",
    "urging": "redelivery",
    "veil": "visibility exceptions",
    "witness": "event recorder",
}
# Names that are part of a contract, or have the word in another meaning.
KEPT = {
    ("cli._store", "dead_letter_options"),  # dead letters are the field's word
    ("cli._store", "wanted_letters"),
    ("cli.push", "dead_letter_options"),
    ("cli.push", "wanted_letters"),
    ("config.checks", "ascii_letters"),  # of the alphabet
    ("engine.redis.presence", "letter"),
    ("engine.redis.record_codec", "letter"),
    ("ids", "letters"),
    ("cli.webhooks", "dead_letter_options"),
    ("cli.webhooks", "wanted_letters"),
}


def names(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def words(name: str) -> set[str]:
    """`_ReadLetters` and `read_letters` are read and letter."""
    found = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())
    return {*found, *(word.removesuffix("s") for word in found)}


def test_no_name_has_a_retired_word() -> None:
    def retired(module: Module) -> set[str]:
        own = {*names(module), *module.name.split(".")}
        return {name for name in own if words(name) & RETIRED.keys() and (module.name, name) not in KEPT}

    assert offences(retired) == {}


def test_no_file_of_tests_has_a_retired_word() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if "fixtures" not in path.parts]
    assert [str(path.relative_to(ROOT)) for path in files if words(path.stem) & RETIRED.keys()] == []


def test_every_kept_name_is_still_there() -> None:
    there = {(module.name, name) for module in modules() for name in names(module)}
    assert there >= KEPT
