"""The Lua verbs: one file each, with what they share put in front."""

from __future__ import annotations

from hashlib import sha1
from importlib import resources


class Script:
    """A verb's source and the hash Redis knows it by."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = sha1(source.encode()).hexdigest()


def _load() -> dict[str, Script]:
    folder = resources.files("greendot.engine.redis").joinpath("lua")
    shared = folder.joinpath("record.lua").read_text()
    verbs = [file for file in folder.iterdir() if file.name.endswith(".lua") and file.name != "record.lua"]
    return {file.name.removesuffix(".lua"): Script(file.name, f"#!lua\n{shared}\n{file.read_text()}") for file in verbs}


SCRIPTS = _load()
