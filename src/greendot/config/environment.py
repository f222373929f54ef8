"""Settings in the environment, and variables that look like settings and are none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from greendot.config.fields import Mistakes
from greendot.config.settings import Settings

PREFIX = "GREENDOT_"
NAMED = ("kinds", "tenants")  # sections of sections, by names people give
# What clients, examples and tests of ours are told by, and no server.
OTHERS = re.compile("URL|HTTP|TOKEN|PYTHON|TEST_.+")
# Kubernetes gives these to every container beside a service called greendot, or greendot-something.
SERVICE_LINKS = re.compile(r"(?:.+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_.+)?)")
ALIKE = 0.8  # as difflib counts it: less is another word


def read_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Section → key → value, of all that is in a section there is. Misspelt keys are found later, like in the file."""
    values: dict[str, dict[str, Any]] = {}
    for section in _sections():
        prefix = f"{PREFIX}{section.name}_".upper()
        lists = {field.name for field in fields(section.type) if isinstance(field.default, tuple)}
        for name, value in environment.items():
            if name.startswith(prefix) and not _is_others(name, value):
                key = name.removeprefix(prefix).lower()
                place, key = _placed(values.setdefault(section.name, {}), section.type, key)
                place[key] = value if key not in lists else [item.strip() for item in value.split(",") if item.strip()]
    return values


def variable(setting: str) -> str:
    """The name of a setting in the environment."""
    return f"{PREFIX}{setting.replace('.', '_')}".upper().partition("[")[0]


def misspelt(environment: Mapping[str, str]) -> Mistakes:
    """Variables that must be meant for us: their writers would wait for an effect in vain."""
    for name in _strange(environment):
        if meant := _meant(name):
            yield f"{name} is no setting. {meant}"


def strange_variables(environment: Mapping[str, str]) -> list[str]:
    """Those that begin like ours and are like nothing there is. They may be somebody else's."""
    return [f"{name} is no setting, and has no effect." for name in _strange(environment) if not _meant(name)]


def _strange(environment: Mapping[str, str]) -> Iterator[str]:
    sections = tuple(f"{PREFIX}{section.name}_".upper() for section in _sections())
    for name, value in environment.items():
        ours = name.upper().startswith(PREFIX) and not name.startswith(sections)
        if ours and not OTHERS.fullmatch(name.removeprefix(PREFIX)) and not _is_others(name, value):
            yield name


def _is_others(name: str, value: str) -> bool:
    rest = name.removeprefix(PREFIX)
    # GREENDOT_PORT, or GREENDOT_SERVER_PORT beside a service greendot-server.
    return bool(SERVICE_LINKS.fullmatch(rest)) or (rest.endswith("PORT") and value.startswith(("tcp://", "udp://")))


def _meant(name: str) -> str:
    """What may be meant; empty if nothing of ours is like it."""
    word = name.upper().removeprefix(PREFIX)
    known = [one for section in _sections() for one in _names_in(section.name, section.type)]
    for section in NAMED:
        if word.startswith(f"{section}_".upper()):
            return f"[{section}] is for the file only."
    found = [one for one in known if one == word or one.endswith(f"_{word}")]  # without its section
    found = found or get_close_matches(word, known, n=1, cutoff=ALIKE)
    return f"Did you mean {' or '.join(f'{PREFIX}{one}' for one in found)}?" if found else ""


def _names_in(at: str, kind: Any) -> Iterator[str]:
    """Variables of a section, without the prefix."""
    for field in fields(kind):
        if isinstance(field.default, Struct):
            yield from _names_in(f"{at}_{field.name}", field.type)
        else:
            yield f"{at}_{field.name}".upper()


def _placed(values: dict[str, Any], kind: Any, key: str) -> tuple[dict[str, Any], str]:
    """Where a key belongs: some sections have sections of their own."""
    for field in fields(kind):
        if isinstance(field.default, Struct) and key.startswith(f"{field.name}_"):
            return values.setdefault(field.name, {}), key.removeprefix(f"{field.name}_")
    return values, key


def _sections() -> list[FieldInfo]:
    """Those with fixed keys, which may also come from the environment."""
    return [field for field in fields(Settings) if field.name not in NAMED]
