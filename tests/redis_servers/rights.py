"""Rights of Greendot's Redis user in docs/redis-keys.md. Tests run with them, so that they stay correct."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[2] / "docs" / "redis-keys.md"
ADMIN = ("admin", "of the tests")
_OF_TESTS = "+hincrby"  # tests advance the engine's time on the engine's own connection
_PATTERNS = "~gd:* &gd:*"


def rights(*prefixes: str, cluster: bool = False) -> str:
    """Return the rights after `reset on >PASSWORD` in the document, for these prefixes (default `gd:`)."""
    text = DOCUMENT.read_text()
    alone, in_a_cluster = re.findall(r"^ACL SETUSER greendot reset on >PASSWORD (.*)$", text, re.MULTILINE)
    (bare,) = re.findall(r"^~presence:.*$", text, re.MULTILINE)
    given = " ".join(f"~{prefix}* &{prefix}*" if prefix else bare for prefix in prefixes or ("gd:",))
    found: str = in_a_cluster if cluster else alone
    assert _PATTERNS in found
    return found.replace(_PATTERNS, given)


def commands(given: str) -> set[str]:
    return {word[1:] for word in given.split() if word.startswith("+")}


def limited(*prefixes: str, cluster: bool = False) -> dict[str, Any]:
    """Return settings of a RedisProcess: connections without a login have Greendot's rights, the test has all."""
    given = rights(*prefixes, cluster=cluster)
    default = f"default on nopass resetkeys resetchannels {given} {_OF_TESTS}"
    return {"login": ADMIN, "user": [default, f"{ADMIN[0]} on nopass ~* &* +@all"]}
