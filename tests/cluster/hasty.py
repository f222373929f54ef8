"""Run in a node before it starts (`FORKED_FIRST`): what it believes for ten seconds, it believes for one."""

from __future__ import annotations

from greendot.store.read_cache import ReadCache

ReadCache.__init__.__defaults__ = (1.0,)  # type: ignore[misc]
