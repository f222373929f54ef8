"""Lines to show: typing users, and when a user was last seen. English, unless other words are given.

Words are templates: `{0}` and `{1}` are names, `{n}` is a number. A number selects one of several templates: one for
each plural form of the language. The forms have their CLDR names (`zero`, `one`, `two`, `few`, `many`, `other`). A
function returns the form for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from greendot.protocol.events import Presence

Plural = Callable[[int], str]
Forms = Mapping[str, str]

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def one_other(number: int) -> str:
    """Return the plural form of English, German, Spanish and many other languages."""
    return "one" if number == 1 else "other"


def _forms(one: str, other: str) -> Forms:
    return {"one": one, "other": other}


@dataclass(frozen=True)
class TypingWords:
    """Words for typing users."""

    one: str = "{0} is typing…"
    two: str = "{0} and {1} are typing…"
    several: str = "several people are typing…"
    # for large rooms, where only the number is known
    counted: Forms = field(default_factory=lambda: _forms("{n} person is typing…", "{n} people are typing…"))
    plural: Plural = one_other


@dataclass(frozen=True)
class SeenWords:
    """Words for a user's state, and for when the user was last seen."""

    online: str = "online"
    idle: str = "away"
    busy: str = "busy"
    offline: str = "offline"
    recently: str = "recently active"
    now: str = "last seen just now"
    minutes: Forms = field(default_factory=lambda: _forms("last seen {n} minute ago", "last seen {n} minutes ago"))
    hours: Forms = field(default_factory=lambda: _forms("last seen {n} hour ago", "last seen {n} hours ago"))
    days: Forms = field(default_factory=lambda: _forms("last seen {n} day ago", "last seen {n} days ago"))
    plural: Plural = one_other


ENGLISH_TYPING = TypingWords()
ENGLISH_SEEN = SeenWords()


def typing_text(names: Iterable[str], *, count: int = 0, words: TypingWords = ENGLISH_TYPING) -> str:
    """Return the line to show under a conversation: up to two names, then "several people"; empty if no user types.

    `count` is for large rooms, where users are not named.
    """
    match list(names):
        case []:
            return _counted(count, words.counted, words.plural) if count > 0 else ""
        case [one]:
            return words.one.format(one)
        case [one, other]:
            return words.two.format(one, other)
        case _:
            return words.several


def seen_text(entry: Presence, now_ms: float, words: SeenWords = ENGLISH_SEEN) -> str:
    """Return the line to show beside a name. The line ages: call again with a later `now_ms` (`Client.now_ms()`)."""
    if entry.mode == "poll":
        return words.recently if entry.recently_active is True else words.offline
    if entry.state != "offline":
        return {"online": words.online, "idle": words.idle, "busy": words.busy}[entry.state]
    if entry.last_seen is None:
        return words.offline
    age = max(now_ms - entry.last_seen, 0)
    if age < MINUTE_MS:
        return words.now
    if age < HOUR_MS:
        return _counted(int(age // MINUTE_MS), words.minutes, words.plural)
    if age < DAY_MS:
        return _counted(int(age // HOUR_MS), words.hours, words.plural)
    return _counted(int(age // DAY_MS), words.days, words.plural)


def _counted(number: int, forms: Forms, plural: Plural) -> str:
    # A translator may have left out forms; `other` always exists.
    return (forms.get(plural(number)) or forms["other"]).format(n=number)
