"""Values as people write them, against what a setting may be: what is wrong with each, said without its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from greendot.config.mistakes import Mistake
from greendot.config.push import Push, TenantPush
from greendot.config.settings import OF_THE_NODE, Limits, Settings
from greendot.config.webhooks import Hook, Webhooks

MOST_SHOWN = 60  # characters of a value that is repeated
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    datetime: "a date and time",
}


def nearest(word: str, known: list[str]) -> str:
    """What may be meant, or all there is."""
    found = get_close_matches(word, known, n=1)
    return f" Did you mean {found[0]!r}?" if found else f" There are: {', '.join(known)}."


class Values:
    """Those of one source. `taken` gives what is right of them, and keeps in `mistakes` what is not."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def taken(self, values: Mapping[str, Any]) -> dict[str, Any]:
        known = {field.name: field.type for field in fields(Settings)}
        right = {}
        for section, given in values.items():
            if section not in known:
                self._wrong(section, f"no section is called [{section}].{nearest(section, [*known])}")
            else:
                right[section] = self._part(section, known[section], given)
        return {section: given for section, given in right.items() if given is not None}

    def _part(self, at: str, kind: Any, given: Any) -> Any:
        """What is right of a value, None if nothing is."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self._section(at, kind, given)
        if get_origin(kind) is dict:
            return self._named(at, get_args(kind)[1], given)
        if get_origin(kind) is tuple and isinstance(given, list | tuple):
            before = len(self.mistakes)
            for number, item in enumerate(given):
                self._part(f"{at}[{number}]", get_args(kind)[0], item)
            return given if len(self.mistakes) == before else None  # a list with a hole in it is another list
        try:
            msgspec.convert(given, kind, strict=False)  # not strict: the environment has only texts
        except msgspec.ValidationError:
            shown = f" is {_short(given)}, and" if _may_be_shown(at, kind, given) else ""
            self._wrong(at, f"{at}{shown} must be {expected(kind)}.")
            return None
        return given

    def _section(self, at: str, kind: type[Struct], given: Any) -> dict[str, Any] | None:
        if not isinstance(given, Mapping):
            self._wrong(at, f"[{at}] must be a section of keys{_like(at)}.")
            return None
        known = {field.name: field for field in fields(kind)}
        right = {}
        for key, value in given.items():
            if key not in known or _elsewhere(at, kind, key):
                word = _elsewhere(at, kind, key) or f"[{at}] has no setting {key!r}.{nearest(key, [*known])}"
                self._wrong(f"{at}.{key}", word)
            elif (part := self._part(f"{at}.{key}", known[key].type, value)) is not None:
                right[key] = part
        missing = [field.name for field in known.values() if field.required and field.name not in given]
        if missing:
            self._wrong(at, f"[{at}] needs {' and '.join(missing)}.")
        return right

    def _named(self, at: str, kind: Any, given: Any) -> dict[str, Any] | None:
        if not isinstance(given, Mapping):
            self._wrong(at, f"[{at}] must be a section of keys.")
            return None
        right = {}
        for name, own in given.items():
            if not isinstance(own, Mapping):
                self._wrong(f"{at}.{name}", f"[{at}] has one section for each name, such as [{at}.{name}].")
            else:
                right[name] = self._section(f"{at}.{name}", kind, own)
        return right

    def _wrong(self, key: str, sentence: str) -> None:
        self.mistakes.append(Mistake((key,), sentence))


def expected(kind: Any) -> str:
    """What may be written for a setting, in words."""
    kind, meta = (get_args(kind)[0], get_args(kind)[1]) if get_origin(kind) is Annotated else (kind, Meta())
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        return "a list" if _is_struct(get_args(kind)[0]) else f"a list, each of it {expected(get_args(kind)[0])}"
    if options := [option for option in get_args(kind) if option is not type(None)]:  # or nothing
        return expected(options[0])
    return _WORDS[kind] + _bounds(meta)


def _bounds(meta: Meta) -> str:
    if meta.min_length is not None:
        return f" of {meta.min_length} to {meta.max_length} characters"
    if meta.gt is not None:
        return f" above {meta.gt:g}, {meta.le} at most"
    return "" if meta.ge is None else f" from {meta.ge} to {meta.le}"


def _elsewhere(at: str, kind: type[Struct], key: str) -> str | None:
    """Where a setting belongs that no tenant can have of its own."""
    if not at.startswith("tenants."):
        return None
    if kind is Limits and key in OF_THE_NODE:
        return f"[{at}]: {key} is of the whole node. Set it in [limits]."
    for own, whole, name, what in (
        (Hook, Webhooks, "webhooks", "all webhooks"),
        (TenantPush, Push, "push", "all tenants"),
    ):
        if kind is own and key in _names(whole) and key not in _names(own):
            return f"[{at}]: {key} holds for {what}. Set it in [{name}]."
    return None


def _names(kind: type[Struct]) -> list[str]:
    return [field.name for field in fields(kind)]


def _like(at: str) -> str:
    """Where a tenant's section can be looked up."""
    return f", as in [{at.rpartition('.')[2]}]" if at.startswith("tenants.") else ""


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def is_secret(kind: Any) -> bool:
    """Whether a setting is marked so (names.Secret)."""
    return get_origin(kind) is Annotated and bool((get_args(kind)[1].extra or {}).get("secret"))


def _may_be_shown(at: str, kind: Any, given: Any) -> bool:
    """Of addresses nothing: they may have a password in them. Nor what stands in the place of keys."""
    keys = get_origin(kind) is tuple and _is_struct(get_args(kind)[0])
    hidden = is_secret(kind) or at.endswith(("url", ".public_key")) or keys
    return isinstance(given, bool | int | float | str) and not hidden


def _short(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else str(given).lower() if isinstance(given, bool) else str(given)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
