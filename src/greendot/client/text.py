"""Texts to show: which users type, and when a user was last seen.

The texts are in English. For another language, pass your own `TypingWords` or `SeenWords`. They consist of templates:
`{0}` and `{1}` are replaced by names, `{n}` by a number.

A template with a number has a text for each plural form of the language, such as "1 minute" and "2 minutes" (`Forms`).
The forms have their CLDR names: `zero`, `one`, `two`, `few`, `many`, `other`. A function (`Plural`) returns the name of
the form for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from greendot.protocol.events import Presence

Plural = Callable[[int], str]
Forms = Mapping[str, str]

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def one_other(number: int) -> str:
    """Return the name of the plural form for English, German, Spanish and many other languages."""
    return "one" if number == 1 else "other"


def _forms(one: str, other: str) -> Forms:
    return {"one": one, "other": other}


@dataclass(frozen=True)
class TypingWords:
    """Templates for the users who type."""

    one: str = "{0} is typing…"
    two: str = "{0} and {1} are typing…"
    several: str = "several people are typing…"  # three or more
    # for large rooms, where the server sends only the number of users who type
    counted: Forms = field(default_factory=lambda: _forms("{n} person is typing…", "{n} people are typing…"))
    plural: Plural = one_other


@dataclass(frozen=True)
class SeenWords:
    """Templates for the state of a user, and for the time when the user was last seen."""

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
    """Return the text to show below a conversation, such as "Alice is typing…". The text is empty if no user types.

    `names` are the users who type. In large rooms there are no names: `count` is then the number of users who type.
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
    """Return the text to show beside a user's name, such as "online" or "last seen 5 minutes ago".

    `now_ms` is the present time (`Client.now_ms()`). The text changes with time, so call the function again regularly.
    """
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
    # A translation may lack some forms, but it always has `other`.
    return (forms.get(plural(number)) or forms["other"]).format(n=number)
