"""Comparison of the state that watchers are shown with a state from the engine."""

from __future__ import annotations

from operator import attrgetter

from msgspec import structs

from greendot.presence.model import VisibleState

CLOCKS_MS = 2_500  # tolerated difference between the engine's clock and a node's copy of it
VERSION = attrgetter("version")


def same_to_others(one: VisibleState, other: VisibleState) -> bool:
    """Return whether others would see no difference."""
    return (one.state, one.text) == (other.state, other.text)


def same_to_user(one: VisibleState, other: VisibleState) -> bool:
    """Return whether the user would see no difference."""
    return same_to_others(one, other) and (one.status, one.until) == (other.status, other.until)


def newer(shown: VisibleState, read: VisibleState, asked_ms: int, *, keeps: bool) -> VisibleState:
    """Return the state that was read if it is not older, and otherwise the shown state if `keeps` is True.

    Of two states with the same version, return one with a last-seen time. The engine may not know this time, because
    only the store has it; both versions are then 0. `asked_ms` is a time of the engine's clock, as this node knows it,
    before the state was read.

    Pass True if the engine has lost nothing, or if the watchers would see no difference. An invisible user would
    otherwise get a new version that a user who is really offline does not get: only the `status` of the two differs.
    """
    if read.version == shown.version and read.last_seen is None:
        return shown if same_to_user(shown, read) and shown.last_seen is not None else read
    if read.version >= shown.version:
        return read
    if keeps:
        return shown
    # Clients ignore older versions: the state that was read gets a newer version. If an earlier failover brought older
    # data, clients may know a newer state than the shown one. So the version is also near the time of the read. It is
    # not later, because each change after the read must have a newer version: its time.
    return structs.replace(read, version=max(shown.version + 1, asked_ms - CLOCKS_MS))
