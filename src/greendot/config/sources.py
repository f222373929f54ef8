"""Where settings come from: the file, the environment, the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import fields

from greendot.config.checks import check
from greendot.config.environment import misspelt, read_environment, variable
from greendot.config.mistakes import Mistake, refuse, within
from greendot.config.settings import Settings, Tenant
from greendot.config.values import Values
from greendot.errors import ConfigError

OWN = ("limits", "visibility", "push")  # sections that tenants may have of their own, and else share
ENVIRONMENT = "in the environment"
Sources = Mapping[str, Mapping[str, Any]]  # section → key → value


class Look(NamedTuple):
    """Something else that settings must pass: `at` raises ConfigError. It is asked only if what it needs is right."""

    needs: tuple[str, ...]  # settings and sections
    at: Callable[[Settings], object]
    about: tuple[str, ...] = ()  # what a mistake is about; empty: all it needs


class Read(NamedTuple):
    """What the sources come to. What was wrong in them is left out of the settings."""

    settings: Settings
    mistakes: list[Mistake]


def load(file: Path | None, environment: Mapping[str, str], flags: Sources, looks: Sequence[Look] = ()) -> Settings:
    """The settings from their sources, checked. ConfigError names every mistake: where it is, and what to do."""
    settings, mistakes = read(file, environment, flags, looks)
    refuse(mistakes)
    return settings


def read(file: Path | None, environment: Mapping[str, str], flags: Sources, looks: Sequence[Look] = ()) -> Read:
    """The same with the mistakes beside it. ConfigError if there is no file, or it is none: what the settings come to
    is not known then, but what is wrong in other places is."""
    merged: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}  # by setting: where it was last set
    mistakes: list[Mistake] = []
    written, broken = _read_file(file)
    for source, given in (
        (f"in {file}", written),
        (ENVIRONMENT, read_environment(environment)),
        ("on the command line", flags),
    ):
        values = Values()
        for section, keys in values.taken(given).items():
            _lay_over(merged.setdefault(section, {}), keys)
            origins |= dict.fromkeys(_settings_in(section, keys), source)
        mistakes += [_named(mistake, {source: mistake.keys}) for mistake in values.mistakes]
    mistakes += [Mistake(mistake.keys, f"{ENVIRONMENT}: {mistake.sentence}") for mistake in misspelt(environment)]
    if broken:
        raise ConfigError(broken, *(mistake.sentence for mistake in mistakes))
    _complete(merged)
    settings = msgspec.convert(merged, Settings, strict=False)
    mistakes += _unrelated(check(settings), mistakes, origins)
    further = [found for look in looks for found in _found(look, settings, mistakes)]
    return Read(settings, mistakes + _unrelated(further, [], origins))


def _read_file(path: Path | None) -> tuple[Sources, str]:
    """What is in it, or why that cannot be said."""
    if path is None:
        return {}, ""
    try:
        return tomllib.loads(path.read_text()), ""
    except OSError as error:
        return {}, f"cannot read {path}: {error.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        return {}, f"{path} is not valid TOML: {error}"


def _lay_over(values: dict[str, Any], further: Mapping[str, Any]) -> None:
    """What is set further on holds; what is not said there stays."""
    for key, value in further.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _lay_over(values[key], value)
        else:
            values[key] = value


def _settings_in(at: str, keys: Mapping[str, Any]) -> Iterable[str]:
    """The full names of what is set there."""
    for key, value in keys.items():
        yield f"{at}.{key}"
        if isinstance(value, Mapping):
            yield from _settings_in(f"{at}.{key}", value)


def _complete(merged: dict[str, dict[str, Any]]) -> None:
    """What a tenant's own section does not say is as everybody's."""
    kinds = {field.name: field.type for field in fields(Tenant)}
    shared = {}
    for section in OWN:  # a part of what is said for everybody may be of the whole node
        known = {field.name for field in fields(kinds[section])}
        shared[section] = {key: value for key, value in merged.get(section, {}).items() if key in known}
    merged["tenants"] = {
        name: tenant | {section: shared[section] | tenant.get(section, {}) for section in OWN}
        for name, tenant in merged.get("tenants", {}).items()
    }


def _found(look: Look, settings: Settings, mistakes: Sequence[Mistake]) -> Iterable[Mistake]:
    if any(mistake.touches(look.needs) for mistake in mistakes):
        return  # it would complain about what is not meant
    try:
        look.at(settings)
    except ConfigError as error:
        for sentence in error.mistakes:
            yield Mistake(look.about or look.needs, sentence)


def _unrelated(found: Iterable[Mistake], known: Sequence[Mistake], origins: Mapping[str, str]) -> list[Mistake]:
    """Those that do not follow from mistakes known already, each with where its settings are."""
    made = []
    for mistake in found:
        common = [_common(key, origins) for key in mistake.keys]
        if any(wrong.touches([*mistake.keys, *common]) for wrong in known):
            continue
        if common != [*mistake.keys] and not any(key in origins for key in mistake.keys):
            continue  # a tenant that only has what everybody has: it is said of that
        places: dict[str, tuple[str, ...]] = {}
        for setting, source in origins.items():
            if any(within(setting, key) for key in common):
                places[source] = (*places.get(source, ()), setting)
        made.append(_named(mistake, places))
    return made


def _common(key: str, origins: Mapping[str, str]) -> str:
    """What holds for a tenant's setting that is not set: everybody's."""
    own = [*key.split(".")[-2:]] if key.startswith("tenants.") and key not in origins else []
    return ".".join(own) if own and own[0] in OWN else key


def _named(mistake: Mistake, places: Mapping[str, tuple[str, ...]]) -> Mistake:
    """With where to look: the file, the variables."""
    told = []
    for source, settings in places.items():
        variables = [variable(name) for name in settings]
        told.append(f"{source} ({', '.join(variables)})" if source == ENVIRONMENT and len(variables) < 4 else source)
    return Mistake(mistake.keys, f"{' and '.join(told)}: {mistake.sentence}" if told else mistake.sentence)
