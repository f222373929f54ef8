"""Modes of presence: how changes of a user reach the watchers, as the app or the operator has chosen.

- `auto`: the number of watchers on a node decides.
- `live`: changes are always delivered, to very many watchers in slices.
- `poll`: changes are not delivered. Clients ask for the state at intervals, and get the field `recently_active`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from greendot.ids import Key

PresenceMode = Literal["auto", "live", "poll"]
_NOTHING: Mapping[str, PresenceMode] = {}


class ModeTable:
    """Modes that a node knows, by tenant. Users in `forced` have the mode `poll` unless the app has chosen another."""

    __slots__ = ("_forced", "_modes")

    def __init__(self, forced: Collection[Key] = ()) -> None:
        self._forced = frozenset(forced)
        self._modes: dict[str, dict[str, PresenceMode]] = {}  # without `auto`

    def of(self, key: Key) -> PresenceMode:
        """Return the mode of a user."""
        tenant, user = key
        mode = self._modes.get(tenant, _NOTHING).get(user)
        return mode or ("poll" if key in self._forced else "auto")

    def has_any(self, tenant: str) -> bool:
        """Return whether a user of the tenant may have another mode than `auto`."""
        return bool(self._forced) or tenant in self._modes

    def put(self, tenant: str, users: Collection[str], modes: Mapping[str, PresenceMode]) -> list[Key]:
        """Set the modes of these users; users who are not in `modes` have none. Return the users whose mode differs."""
        before = {user: self.of((tenant, user)) for user in users}
        theirs = self._modes.pop(tenant, {})
        for user in users:
            theirs.pop(user, None)
        theirs.update({user: modes[user] for user in users if user in modes})
        if theirs:
            self._modes[tenant] = theirs
        return [(tenant, user) for user in users if before[user] != self.of((tenant, user))]

    def replace(self, tenant: str, modes: Mapping[str, PresenceMode]) -> list[Key]:
        """Set all modes of a tenant. Return the users for whom the app has chosen another mode, or none any more."""
        before = self._modes.pop(tenant, _NOTHING)
        if modes:
            self._modes[tenant] = {**modes}
        return [(tenant, user) for user in {**before, **modes} if before.get(user) != modes.get(user)]
