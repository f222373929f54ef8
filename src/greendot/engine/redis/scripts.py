"""Lua scripts of the verbs (see `engine.port`): one file for each verb, prefixed with the shared code that it uses.

Redis keeps the sources in memory, so they have no comments, no indentation, and only the parts of the shared code that
the verb needs. A part is a paragraph of `record.lua`.
"""

from __future__ import annotations

import re
from hashlib import sha1
from importlib import resources

# Verbs that mostly remove data run even when Redis is out of memory. Read-only verbs need their flag to run then.
_READS = ("audit", "census", "online", "read", "room_nodes", "typers")
_REMOVALS = (
    "adopt",
    "beat",
    "bury",
    "correct",
    "erase",
    "exit",
    "forget",
    "leave",
    "linger",
    "look",
    "occupants",
    "present",
    "prune",
    "reap",
    "settle",
)
_FLAGS = dict.fromkeys(_READS, "no-writes") | dict.fromkeys((*_REMOVALS, "typing_stop"), "allow-oom")


class Script:
    """Source of a verb, and the hash by which Redis knows it."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = sha1(source.encode(), usedforsecurity=False).hexdigest()  # name of the script in Redis


def _load() -> dict[str, Script]:
    folder = resources.files("greendot.engine.redis").joinpath("lua")
    shared = folder.joinpath("record.lua").read_text().split("\n\n")
    found = {}
    for file in folder.iterdir():
        name = file.name.removesuffix(".lua")
        if file.name.endswith(".lua") and name != "record":
            flags = f" flags={_FLAGS[name]}" if name in _FLAGS else ""
            found[name] = Script(name, f"#!lua{flags}\n{_with_parts(_bare(file.read_text()), shared)}")
    return found


def _bare(source: str) -> str:
    """Return the source without comments and indentation."""
    lines = (re.sub(r"(^|  )-- ?.*", "", line.strip()) for line in source.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _with_parts(source: str, parts: list[str]) -> str:
    """Return the source behind the parts that define names used in it, or in these parts."""
    for part in reversed(parts):
        defined = re.findall(r"^local (?:function )?(\w+)", part, re.MULTILINE)
        if any(re.search(rf"\b{name}\b", source) for name in defined):
            source = _bare(part) + source
    return source


SCRIPTS = _load()
