"""Reference of all settings, as a TOML file: each setting with its default, description and allowed values.

Also the view of current settings without secrets, for printing.
"""

from __future__ import annotations

import re
import textwrap
from datetime import datetime
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from greendot.config.fields import description, is_secret, is_section, split
from greendot.config.settings import Settings
from greendot.config.values import expected

WIDTH = 110
HEAD = """\
Every setting of Greendot {version} with its default. A setting that is left out has its default.
`grace_s` under [presence] is GREENDOT_PRESENCE_GRACE_S in the environment. Check a file with
`greendot check-config --config FILE`; `greendot genconfig` writes one for production.
"""


def commented(version: str) -> str:
    """Return the reference file. Loading it gives the defaults."""
    lines = [f"# {line}".rstrip() for line in HEAD.format(version=version).splitlines()]
    for section in fields(Settings):
        if (of := _items(section)) is not None:
            lines += ["", *_example(f"{section.name}.NAME", of, section)]
        else:
            lines += ["", *_section(section.name, section.type)]
    return "\n".join([*lines, ""])


def _section(at: str, kind: type[Struct]) -> list[str]:
    own, below = [f"[{at}]"], []
    for field in fields(kind):
        if isinstance(field.default, Struct):
            below += ["", *_section(f"{at}.{field.name}", field.type)]
        elif (of := _items(field)) is not None:
            named = f"{at}.{field.name}.NAME" if field.default_factory is dict else f"[{at}.{field.name}]"
            below += ["", *_example(named, of, field)]
        else:
            own += [*_remark(_text(field)), f"{field.name} = {_value(field.default)}"]
    return own + below


def _example(at: str, kind: type[Struct], field: FieldInfo) -> list[str]:
    """Return a repeatable section as comments: by default there is no such section."""
    lines = [*_remark(description(field.type)), f"#[{at}]"]
    for own in fields(kind):
        if isinstance(own.default, Struct):
            lines += [f"#[{at}.{own.name}]", *_remark(f"settings of this tenant, as in [{own.name}]")]
        elif _items(own) is None:
            value, text = _value(None if own.required else own.default), _text(own)
            lines.append(f"#{own.name} = {value}" + (f"  # {text}" if text else ""))
    return lines


def _items(field: FieldInfo) -> type[Struct] | None:
    """Return the Struct of a section, if the setting is a list of sections or sections by name; else None."""
    return next((kind for kind in get_args(split(field.type)[0]) if is_section(kind)), None)


def _text(field: FieldInfo) -> str:
    """Return the description, and the allowed values unless the default shows them."""
    may_be = expected(field.type)
    shown = may_be in ("a string", "true or false", "a list, each item a string")
    return " · ".join(part for part in (description(field.type), "" if shown else may_be) if part)


def _remark(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _value(default: Any) -> str:
    if default is None or isinstance(default, datetime):
        return "…"
    return msgspec.json.encode(default).decode()


_PATHS = (
    "webhooks",
    "before_publish",
    "visibility",
    "push",
    "pusher",
    "centrifuge",
)  # sections with URLs whose paths may be secret
# Not urlsplit: newer Pythons refuse several hosts of which one is in brackets.
_LOGIN = re.compile("(?<=://)[^/?#]*@")
_END_OF_HOSTS = re.compile("[/?#]")


def shown(settings: Settings) -> dict[str, Any]:
    """Return the settings by section, without secrets, logins and paths that may be secret."""
    return _struct("", settings)


def _struct(at: str, of: Struct) -> dict[str, Any]:
    return {field.name: _shown_value(f"{at}.{field.name}", field.type, getattr(of, field.name)) for field in fields(of)}


def _shown_value(at: str, kind: Any, value: Any) -> Any:
    if isinstance(value, Struct):
        return _struct(at, value)
    if isinstance(value, dict):
        return {name: _struct(f"{at}.{name}", own) for name, own in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], Struct):
        return [_struct(at, item) for item in value]
    if is_secret(kind):
        return "(set)" if value else "(not set)"
    if at.endswith("url"):
        return _address(at, value)
    return msgspec.to_builtins(value)


def _address(at: str, url: str) -> str:
    """Return a URL without user and password. A URL in one of `_PATHS` is reduced to scheme and host."""
    place = _LOGIN.sub("", url, count=1)
    if url and at.split(".")[-2] in _PATHS:
        scheme, _, rest = place.partition("://")
        return f"{scheme}://{_END_OF_HOSTS.split(rest, maxsplit=1)[0]}/…"
    return place
