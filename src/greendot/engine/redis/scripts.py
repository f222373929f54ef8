"""Lua scripts of the verbs (see `engine.port`): one file for each verb, prefixed with the shared code."""

from __future__ import annotations

from hashlib import sha1
from importlib import resources

# Verbs that mostly remove data run even when Redis is out of memory. Read-only verbs need their flag to run then.
_READS = ("audit", "census", "online", "read", "room_nodes", "typers")
_REMOVALS = (
    "adopt",
    "beat",
    "bury",
    "correct",
    "exit",
    "forget",
    "leave",
    "linger",
    "look",
    "present",
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
    shared = folder.joinpath("record.lua").read_text()
    found = {}
    for file in folder.iterdir():
        name = file.name.removesuffix(".lua")
        if file.name.endswith(".lua") and name != "record":
            flags = f" flags={_FLAGS[name]}" if name in _FLAGS else ""
            # These verbs read many users at once. They do not end expired data, and do not need the shared code.
            begin = "" if name in ("online", "read") else shared
            found[name] = Script(name, f"#!lua{flags}\n{begin}\n{file.read_text()}")
    return found


SCRIPTS = _load()
