"""All settings as a TOML file with comments: each with its default, what it means and what it may be.

What a setting means is the comment beside it in its section's class: there it is read by who changes it.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from greendot.config.settings import Settings
from greendot.config.values import expected, is_secret

WIDTH = 110
HEAD = """\
Every setting of Greendot {version}, with its default: what is left out is as it is here.
`grace_s` under [presence] is GREENDOT_PRESENCE_GRACE_S in the environment. Check a file with
`greendot check-config --config FILE`; `greendot genconfig` writes one for production.
"""


def commented(version: str) -> str:
    """The file. Read, it gives the defaults."""
    lines = [f"# {line}".rstrip() for line in HEAD.format(version=version).splitlines()]
    for section in fields(Settings):
        if get_origin(section.type) is dict:
            lines += ["", *_example(f"{section.name}.NAME", get_args(section.type)[1], section, Settings)]
        else:
            lines += ["", *_section(section.name, section.type)]
    return "\n".join([*lines, ""])


def meanings(kind: type[Struct]) -> dict[str, str]:
    """By setting: the comment beside it. None where the source is not at hand."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one is not Struct and one is not object and issubclass(one, Struct):
            found |= _comments(one)
    return found


@cache
def _comments(kind: type[Struct]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    by_line = {
        token.start[0]: token.string.partition("  # noqa")[0].lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
    }
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        part.target.id: text
        for part in body.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        if (text := " ".join(by_line[line] for line in range(part.lineno, _end(part) + 1) if line in by_line))
    }


def _end(part: ast.AnnAssign) -> int:
    return part.end_lineno or part.lineno


def _section(at: str, kind: type[Struct]) -> list[str]:
    own, below = [f"[{at}]"], []
    told = meanings(kind)
    for field in fields(kind):
        if isinstance(field.default, Struct):
            below += ["", *_section(f"{at}.{field.name}", field.type)]
        elif get_origin(field.type) is dict:
            below += ["", *_example(f"{at}.{field.name}.NAME", get_args(field.type)[1], field, kind)]
        elif (items := _items(field)) is not None:
            below += ["", *_example(f"[{at}.{field.name}]", items, field, kind)]
        else:
            own += [*_remark(told.get(field.name, ""), _may_be(field)), f"{field.name} = {_value(field.default)}"]
    return own + below


def _example(at: str, kind: type[Struct], field: FieldInfo, of: type[Struct]) -> list[str]:
    """Of a section that there may be several of, by names people give: nothing of it is a default."""
    told, means = meanings(kind), meanings(of).get(field.name, "")
    lines = [*_remark(means, ""), f"#[{at}]"]
    for own in fields(kind):
        if isinstance(own.default, Struct):
            lines += [f"#[{at}.{own.name}]", *_remark(f"what is different from [{own.name}]", "")]
        elif get_origin(own.type) is not dict:
            text = " · ".join(part for part in (told.get(own.name, ""), _may_be(own)) if part)
            lines.append(
                f"#{own.name} = {_value(None if own.required else own.default)}" + (f"  # {text}" if text else "")
            )
    return lines


def _items(field: FieldInfo) -> type[Struct] | None:
    """What a list of sections is of."""
    kind = get_args(field.type)[0] if get_origin(field.type) is tuple else None
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _may_be(field: FieldInfo) -> str:
    """As far as the default does not show it."""
    text = expected(field.type)
    return "" if text in ("a text", "true or false", "a list, each of it a text") else text


def _remark(means: str, may_be: str) -> Iterator[str]:
    text = " · ".join(part for part in (means, may_be) if part)
    yield from textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _value(default: Any) -> str:
    if default is None or isinstance(default, datetime):
        return "…"
    return msgspec.json.encode(default).decode()


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
