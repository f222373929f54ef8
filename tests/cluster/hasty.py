"""Setup for a forked node (`FORKED_FIRST`): shorten the read cache from ten seconds to one."""

from __future__ import annotations

from greendot.store.read_cache import ReadCache

ReadCache.__init__.__defaults__ = (1.0,)  # type: ignore[misc]
