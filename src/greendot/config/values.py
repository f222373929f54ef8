"""Checks of values against the types and bounds of the settings. Mistakes never repeat a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from greendot.config.fields import is_secret, is_section, split
from greendot.config.push import Push, TenantPush
from greendot.config.settings import OF_THE_NODE, Limits, Settings
from greendot.config.webhooks import Hook, Webhooks
from greendot.protocol.spelling import nearest

WrongValues = Iterator[tuple[str, str]]  # the setting and the mistake
MOST_SHOWN = 60  # characters of a wrong value in a mistake
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    datetime: "a date and time",
}


def _meant(word: str, known: Iterable[str]) -> str:
    """Return a hint: the known word closest to `word`, or all known words."""
    found = nearest(word, known)
    return f" Did you mean {found!r}?" if found else f" Valid names: {', '.join(known)}."


def check_values(given: Mapping[str, Any]) -> WrongValues:
    """Yield the mistakes of one source: unknown sections and settings, and values of a wrong type or range."""
    known = {field.name: field.type for field in fields(Settings)}
    for section, values in given.items():
        if section not in known:
            yield section, f"there is no section [{section}].{_meant(section, known)}"
        else:
            yield from _check_value(section, known[section], values)


def _check_value(at: str, kind: Any, given: Any) -> WrongValues:
    plain, _ = split(kind)
    if is_section(plain):
        yield from _check_section(at, plain, given)
    elif get_origin(plain) is dict:
        yield from _check_named(at, get_args(plain)[1], given)
    elif get_origin(plain) is tuple and isinstance(given, list | tuple):
        for number, item in enumerate(given):
            yield from _check_value(f"{at}[{number}]", get_args(plain)[0], item)
    else:
        try:
            msgspec.convert(given, kind, strict=False)  # not strict: environment variables are strings
        except msgspec.ValidationError:
            shown = f" is {_short(given)} but" if _may_be_shown(at, kind, given) else ""
            yield at, f"{at}{shown} must be {expected(kind)}."


def _check_section(at: str, kind: type[Struct], given: Any) -> WrongValues:
    if not isinstance(given, Mapping):
        example = f", as in [{at.rpartition('.')[2]}]" if at.startswith("tenants.") else ""
        yield at, f"[{at}] must be a section with settings{example}."
        return
    known = {field.name: field for field in fields(kind)}
    for key, value in given.items():
        if elsewhere := _elsewhere(at, kind, key):
            yield f"{at}.{key}", elsewhere
        elif key not in known:
            yield f"{at}.{key}", f"[{at}] has no setting {key!r}.{_meant(key, known)}"
        else:
            yield from _check_value(f"{at}.{key}", known[key].type, value)
    missing = [field.name for field in known.values() if field.required and field.name not in given]
    if missing:
        yield at, f"[{at}] needs {' and '.join(missing)}."


def _check_named(at: str, kind: Any, given: Any) -> WrongValues:
    """Check sections whose names operators choose."""
    if not isinstance(given, Mapping):
        yield at, f"[{at}] must be a section with settings."
        return
    for name, own in given.items():
        if isinstance(own, Mapping):
            yield from _check_section(f"{at}.{name}", kind, own)
        else:
            yield f"{at}.{name}", f"{at}.{name} must be a section with settings. Write it as [{at}.{name}]."


def expected(kind: Any) -> str:
    """Return in words which values a setting takes."""
    kind, metas = split(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        return "a list" if is_section(get_args(kind)[0]) else f"a list, each item {expected(get_args(kind)[0])}"
    if options := [option for option in get_args(kind) if option is not type(None)]:  # an optional setting
        return expected(options[0])
    return _WORDS[kind] + "".join(map(_bounds, metas))


def _bounds(meta: Meta) -> str:
    if meta.min_length is not None:
        return f" of {meta.min_length} to {meta.max_length} characters"
    if meta.gt is not None:
        return f" above {meta.gt:g} and at most {meta.le}"
    return "" if meta.ge is None else f" from {meta.ge} to {meta.le}"


def _elsewhere(at: str, kind: type[Struct], key: str) -> str | None:
    """Return a mistake with the section to use, if no tenant can have the setting of its own; else None."""
    if not at.startswith("tenants."):
        return None
    if kind is Limits and key in OF_THE_NODE:
        return f"[{at}]: {key} applies to the whole node. Set it in [limits]."
    for own, whole, name, what in (
        (Hook, Webhooks, "webhooks", "all webhooks"),
        (TenantPush, Push, "push", "all tenants"),
    ):
        if kind is own and key in whole.__struct_fields__ and key not in own.__struct_fields__:
            return f"[{at}]: {key} applies to {what}. Set it in [{name}]."
    return None


def _may_be_shown(at: str, kind: Any, given: Any) -> bool:
    """Return whether a mistake may repeat the value.

    Not for secrets, for URLs, which may contain a password, and for values in the place of keys.
    """
    plain, _ = split(kind)
    keys = get_origin(plain) is tuple and is_section(get_args(plain)[0])
    hidden = is_secret(kind) or at.endswith(("url", ".public_key")) or keys
    return isinstance(given, bool | int | float | str) and not hidden


def _short(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else str(given).lower() if isinstance(given, bool) else str(given)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
