"""Admission of dashboard sockets: how many wait for their key to be checked, and how many viewers a node serves.

A socket without an accepted key takes no viewer's place. Waiting sockets are bounded by displacing the oldest, never by
refusing the newest: an operator who sends the key at once is checked however many silent sockets there are.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from greendot.admin.access import Viewer

MOST_PENDING = 256  # sockets without an accepted key
MOST_OPERATORS = 32  # viewers who see nodes
MOST_TENANTS = 32  # viewers who see one tenant, of all tenants together
MOST_TENANT = 8  # of one tenant

S = TypeVar("S")  # a socket; hashable


class Admission(Generic[S]):
    """Sockets that wait and sockets that view. Each is in at most one of the two sets."""

    def __init__(self) -> None:
        self._silent: dict[S, None] = {}  # no key sent yet, oldest first
        self._checked: dict[S, None] = {}  # key sent and not accepted, oldest first
        self._viewers: dict[S, str | None] = {}  # None: an operator; otherwise the tenant

    @property
    def pending(self) -> int:
        return len(self._silent) + len(self._checked)

    def open(self, socket: S) -> S | None:
        """Add a socket. Returns the one to close for it: the oldest silent one, or the oldest there is."""
        displaced = None
        if self.pending >= MOST_PENDING:
            displaced = next(iter(self._silent or self._checked))
            self.remove(displaced)
        self._silent[socket] = None
        return displaced

    def key_sent(self, socket: S) -> None:
        """Mark a socket as one whose key is being checked: silent ones are displaced before it."""
        del self._silent[socket]
        self._checked[socket] = None

    def admit(self, socket: S, viewer: Viewer) -> str | None:
        """Give a viewer a place. Returns why there is none, and None where there is."""
        tenant = None if viewer.nodes else viewer.tenant
        taken = Counter(self._viewers.values())
        if tenant is None and taken[None] >= MOST_OPERATORS:
            return f"{MOST_OPERATORS} operators use the dashboard of this node already"
        if tenant is not None and taken[tenant] >= MOST_TENANT:
            return f"{MOST_TENANT} sockets of tenant {tenant} use the dashboard of this node already"
        if tenant is not None and taken.total() - taken[None] >= MOST_TENANTS:
            return f"{MOST_TENANTS} sockets of tenants use the dashboard of this node already"
        del self._checked[socket]
        self._viewers[socket] = tenant
        return None

    def remove(self, socket: S) -> None:
        """Forget a socket; removing it twice is allowed."""
        for sockets in (self._silent, self._checked, self._viewers):
            sockets.pop(socket, None)
