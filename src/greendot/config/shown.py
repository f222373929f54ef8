"""Settings as they may be read by anybody: without secrets, and addresses without what may be a password in them."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from greendot.config.settings import Settings
from greendot.config.values import is_secret

_PATHS = ("webhooks", "visibility", "push")  # sections with URLs whose paths may be as good as a password
# Not urlsplit: in newer Pythons it refuses several hosts of which one is in brackets.
_LOGIN = re.compile("(?<=://)[^/?#]*@")
_END_OF_HOSTS = re.compile("[/?#]")


def shown(settings: Settings) -> dict[str, Any]:
    """By section."""
    made: dict[str, Any] = _struct("", settings)
    return made


def _struct(at: str, of: Struct) -> dict[str, Any]:
    return {field.name: _shown_value(f"{at}.{field.name}", field.type, getattr(of, field.name)) for field in fields(of)}


def _shown_value(at: str, kind: Any, value: Any) -> Any:
    if isinstance(value, Struct):
        return _struct(at, value)
    if isinstance(value, dict):
        return {name: _shown_value(f"{at}.{name}", get_args(kind)[1], own) for name, own in value.items()}
    if get_origin(kind) is tuple and value and isinstance(value[0], Struct):
        return [_struct(at, item) for item in value]
    if is_secret(kind):
        return "(set)" if value else "(not set)"
    if at.endswith("url"):
        return _address(at, value)
    return msgspec.to_builtins(value)


def _address(at: str, url: str) -> str:
    """A URL without user and password; of an app's only where it is."""
    place = _LOGIN.sub("", url, count=1)
    if url and at.split(".")[-2] in _PATHS:
        scheme, _, rest = place.partition("://")
        return f"{scheme}://{_END_OF_HOSTS.split(rest, maxsplit=1)[0]}/…"
    return place
