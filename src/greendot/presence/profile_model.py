"""Profile of a user: display name and info, as the app has set them. Info is a JSON object of at most 1,024 bytes.

A profile is set by HTTP, or by the claims of a token. If both set a profile, the later of the two counts. The time
of a token is the time of its issue.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, structs


class Profile(Struct, frozen=True, gc=False):
    """Stored profile. A profile with a lower revision (`rev`) is older."""

    name: str | None = None  # None: the name of the token is shown
    info: bytes = b""  # encoded; empty: none
    at: int = 0  # time of the last change, in milliseconds UTC
    rev: int = 0  # 0: nothing is stored; -1: the revision is not known

    @property
    def wire(self) -> Any:
        """Return the value of the field `info` in a frame, which is left out if there is none."""
        return Raw(self.info) if self.info else UNSET

    def looks_like(self, other: Profile) -> bool:
        """Return whether both show the same to others."""
        return (self.name, self.info) == (other.name, other.info)


NO_PROFILE = Profile()


class ProfileChange(Struct, frozen=True):
    """Change of a stored profile. Fields that are UNSET keep their value."""

    at: int  # time of the change, in milliseconds UTC
    now: int  # time of the write; the revision is at least this
    name: str | UnsetType | None = UNSET
    info: bytes | UnsetType = UNSET
    only_newer: bool = False  # write nothing if the stored profile has changed after `at`

    @property
    def values(self) -> tuple[str | None, bytes | None, int, int, bool, bool, bool]:
        """Return the values of the statement that writes the change: also whether name and info are kept."""
        keeps_name, keeps_info = isinstance(self.name, UnsetType), isinstance(self.info, UnsetType)
        name, info = None if keeps_name else self.name, None if keeps_info else self.info or None
        return name, info, self.at, self.now, keeps_name, keeps_info, self.only_newer  # type: ignore[return-value]


def claimed(stored: Profile, name: str | None, info: bytes | None, at: int, now: int) -> ProfileChange | None:
    """Return the change that the claims of a token make; None if they change nothing.

    `info` is None if the token has no claim `info`. Such a token changes the name only if the profile has a name: other
    names come from the engine. A token of the future counts as issued now: it must not win over later changes.
    """
    at = min(at, now)
    if at < stored.at:
        return None
    keeps_name = name is None or (not info and stored.name is None)
    change = ProfileChange(at, now, UNSET if keeps_name else name, UNSET if info is None else info, only_newer=True)
    shown = Profile(stored.name if keeps_name else name, stored.info if info is None else info)
    return None if shown.looks_like(stored) else change


def newest(known: Profile, read: Profile) -> Profile:
    """Return the newer of two profiles. If no profile was read (`rev` 0), return that: the profile was erased."""
    return read if read.rev == 0 or read.rev >= known.rev else known


def doubted(profile: Profile) -> Profile:
    """Return the profile with the lowest revision, so that any read replaces it: the store may have been restored."""
    return structs.replace(profile, rev=-1) if profile.rev else profile


def shown_name(profile: Profile, name: str | None) -> str | None:
    """Return the name to show: that of the profile, otherwise that of the token."""
    return name if profile.name is None else profile.name
