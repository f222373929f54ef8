"""Where settings come from: the file, the environment, the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields

from greendot.errors import ConfigError
from greendot.settings.checks import check
from greendot.settings.sections import OF_THE_NODE, Kind, Limits, Settings, Tenant
from greendot.settings.visibility import Visibility
from greendot.settings.webhooks import Hook, Webhooks

NAMED: dict[str, type] = {"kinds": Kind, "tenants": Tenant}  # sections of sections, by names people give
OWN: dict[str, type] = {"limits": Limits, "visibility": Visibility}  # sections that tenants may have of their own
Sources = Mapping[str, Mapping[str, Any]]  # section → key → value


def load(file: Path | None, environment: Mapping[str, str], flags: Sources) -> Settings:
    """The settings from their sources, checked. ConfigError names the source, the setting and what to do."""
    merged: dict[str, dict[str, Any]] = {}
    for source, values in (
        (str(file), _read_file(file) if file else {}),
        ("the environment", _read_environment(environment)),
        ("the command line", flags),
    ):
        _convert(source, values)
        for section, keys in values.items():
            merged.setdefault(section, {}).update(keys)
    _complete(merged)
    settings = _convert("", merged)
    check(settings)
    return settings


def _read_file(path: Path) -> Sources:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _read_environment(environment: Mapping[str, str]) -> Sources:
    values: dict[str, dict[str, Any]] = {}
    for section in _sections():
        prefix = f"GREENDOT_{section.name}_".upper()
        lists = {field.name for field in fields(section.type) if isinstance(field.default, tuple)}
        for name, value in environment.items():
            if name.startswith(prefix):  # a misspelt one is found later, like one in the file
                key = name.removeprefix(prefix).lower()
                values.setdefault(section.name, {})[key] = value if key not in lists else _split(value)
    return values


def _split(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def strange_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings of ours and are none, each with what may be meant."""
    known = [f"GREENDOT_{s.name}_{field.name}".upper() for s in _sections() for field in fields(s.type)]
    sections = tuple(f"GREENDOT_{section.name}_".upper() for section in _sections())
    strange = [name for name in environment if name.startswith("GREENDOT_") and not name.startswith(sections)]
    return [f"{name} is not a setting.{_nearest(name, known)}" for name in strange if get_close_matches(name, known, 1)]


def _convert(source: str, values: Sources) -> Settings:
    for section, keys in values.items():
        _known(source, section, keys)
    try:
        # Not strict: the environment has only strings, and "30" must do for a number there.
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"in {source}: {error}".replace("`$.", "`")) from None


def _complete(merged: dict[str, dict[str, Any]]) -> None:
    """What a tenant's own section does not say is as everybody's."""
    merged["tenants"] = {
        name: tenant | {section: merged.get(section, {}) | tenant.get(section, {}) for section in OWN}
        for name, tenant in merged.get("tenants", {}).items()
    }


def _known(source: str, section: str, keys: Any) -> None:
    sections: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
    if section not in sections:
        raise ConfigError(f"in {source}: no section is called [{section}].{_nearest(section, sections)}")
    if not isinstance(keys, Mapping):
        raise ConfigError(f"in {source}: [{section}] must be a section of keys.")
    if section not in NAMED:
        _all_known(source, section, keys, sections[section])
        return
    for name, own in keys.items():
        if not isinstance(own, Mapping):
            raise ConfigError(f"in {source}: [{section}] has one section for each name, such as [{section}.{name}].")
        _all_known(source, f"{section}.{name}", own, NAMED[section])
        if section == "tenants":
            for part, kind in OWN.items():
                _known_own(source, f"tenants.{name}.{part}", own.get(part, {}), kind)
            _known_hook(source, f"tenants.{name}.webhooks", own.get("webhooks", {}))


def _known_own(source: str, section: str, keys: Any, kind: type) -> None:
    if not isinstance(keys, Mapping):
        common = section.rpartition(".")[2]
        raise ConfigError(f"in {source}: [{section}] must be a section of keys, as in [{common}].")
    for key in keys:
        if key in OF_THE_NODE:
            raise ConfigError(f"in {source}: [{section}]: {key} is of the whole node. Set it in [limits].")
    _all_known(source, section, keys, kind)


def _known_hook(source: str, section: str, keys: Any) -> None:
    if not isinstance(keys, Mapping):
        raise ConfigError(f"in {source}: [{section}] must be a section of keys, such as url and secret.")
    own = [field.name for field in fields(Hook)]
    for key in keys:
        if key not in own and key in (field.name for field in fields(Webhooks)):
            raise ConfigError(f"in {source}: [{section}]: {key} holds for all webhooks. Set it in [webhooks].")
    _all_known(source, section, keys, Hook)


def _all_known(source: str, section: str, keys: Mapping[str, Any], kind: Any) -> None:
    known = [field.name for field in fields(kind)]
    for key in keys:
        if key not in known:
            raise ConfigError(f"in {source}: [{section}] has no setting {key!r}.{_nearest(key, known)}")


def _sections() -> list[FieldInfo]:
    """Those with fixed keys, which may also come from the environment."""
    return [field for field in fields(Settings) if field.name not in NAMED]


def _nearest(word: str, known: Any) -> str:
    found = get_close_matches(word, list(known), n=1)
    return f" Did you mean {found[0]!r}?" if found else f" There are: {', '.join(known)}."
