"""Settings in the environment, and variables that resemble settings but are none."""

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
NAMED = ("kinds", "tenants")  # sections with subsections, whose names operators choose
# Variables of Greendot's clients, examples and tests. No server reads them.
OTHERS = re.compile("URL|HTTP|TOKEN|PYTHON|TEST_.+")
# Variables that Kubernetes sets in every container beside a service called greendot or greendot-*.
SERVICE_LINKS = re.compile(r"(?:.+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_.+)?)")
ALIKE = 0.8  # difflib's ratio; names with a lower one are different words


def read_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return section → key → value of the variables that begin with a section's name.

    Misspelt keys are included: `check_values` reports them later, like those in the file.
    """
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
    """Return the name of a setting in the environment."""
    return f"{PREFIX}{setting.replace('.', '_')}".upper().partition("[")[0]


def misspelt(environment: Mapping[str, str]) -> Mistakes:
    """Yield a mistake for each variable that resembles a setting, because the variable would have no effect."""
    for name in _strange(environment):
        if meant := _meant(name):
            yield f"{name} is not a setting. {meant}"


def strange_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable with our prefix that resembles no setting.

    Such variables are no mistakes: they may belong to other software.
    """
    return [f"{name} is not a setting and has no effect." for name in _strange(environment) if not _meant(name)]


def _strange(environment: Mapping[str, str]) -> Iterator[str]:
    sections = tuple(f"{PREFIX}{section.name}_".upper() for section in _sections())
    for name, value in environment.items():
        ours = name.upper().startswith(PREFIX) and not name.startswith(sections)
        if ours and not OTHERS.fullmatch(name.removeprefix(PREFIX)) and not _is_others(name, value):
            yield name


def _is_others(name: str, value: str) -> bool:
    rest = name.removeprefix(PREFIX)
    # Kubernetes sets GREENDOT_PORT, or GREENDOT_SERVER_PORT beside a service greendot-server, to a URL.
    return bool(SERVICE_LINKS.fullmatch(rest)) or (rest.endswith("PORT") and value.startswith(("tcp://", "udp://")))


def _meant(name: str) -> str:
    """Return a hint at the settings that may be meant; empty if no setting resembles the name."""
    word = name.upper().removeprefix(PREFIX)
    known = [one for section in _sections() for one in _names_in(section.name, section.type)]
    for section in NAMED:
        if word.startswith(f"{section}_".upper()):
            return f"Set [{section}] in the file."
    found = [one for one in known if one == word or one.endswith(f"_{word}")]  # a name without the section
    found = found or get_close_matches(word, known, n=1, cutoff=ALIKE)
    return f"Did you mean {' or '.join(f'{PREFIX}{one}' for one in found)}?" if found else ""


def _names_in(at: str, kind: Any) -> Iterator[str]:
    """Yield the variables of a section, without the prefix."""
    for field in fields(kind):
        if isinstance(field.default, Struct):
            yield from _names_in(f"{at}_{field.name}", field.type)
        else:
            yield f"{at}_{field.name}".upper()


def _placed(values: dict[str, Any], kind: Any, key: str) -> tuple[dict[str, Any], str]:
    """Return the mapping that a key belongs to, and the key in it. Some sections have subsections."""
    for field in fields(kind):
        if isinstance(field.default, Struct) and key.startswith(f"{field.name}_"):
            return values.setdefault(field.name, {}), key.removeprefix(f"{field.name}_")
    return values, key


def _sections() -> list[FieldInfo]:
    """Return the sections with fixed keys, which may also come from the environment."""
    return [field for field in fields(Settings) if field.name not in NAMED]
