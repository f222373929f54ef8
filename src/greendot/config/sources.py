"""Sources of settings: the file, the environment, the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from greendot.config.before_publish import BeforePublish
from greendot.config.checks import check
from greendot.config.environment import misspelt, read_environment, variable
from greendot.config.fields import refuse
from greendot.config.push import TenantPush
from greendot.config.settings import LOCAL, Limits, Settings
from greendot.config.values import check_values
from greendot.config.visibility import Visibility
from greendot.errors import ConfigError

OWN = {
    "limits": Limits,
    "visibility": Visibility,
    "push": TenantPush,
    "before_publish": BeforePublish,
}  # sections that tenants can override
Sources = Mapping[str, Mapping[str, Any]]  # section → key → value
Check = Callable[[Settings], object]  # raises ConfigError


def load(file: Path | None, environment: Mapping[str, str], flags: Sources, checks: Sequence[Check] = ()) -> Settings:
    """Read the settings from their sources and check them: first values, then relations, then the given `checks`.

    Raise ConfigError with every mistake of the first of these rounds that finds any.
    """
    settings = _read(file, environment, flags)
    refuse(check(settings))
    refuse(mistake for further in checks for mistake in _found(further, settings))
    return settings


def _read(file: Path | None, environment: Mapping[str, str], flags: Sources) -> Settings:
    """Merge the sources. Raise ConfigError with every wrong value and the source it is in."""
    written, broken = _read_file(file)
    variables = read_environment(environment)
    refuse(
        [
            *broken,
            *(f"in {file}: {mistake}" for _, mistake in check_values(written)),
            *(f"in the environment ({variable(name)}): {mistake}" for name, mistake in check_values(variables)),
            *(f"on the command line: {mistake}" for _, mistake in check_values(flags)),
            *(f"in the environment: {mistake}" for mistake in misspelt(environment)),
        ]
    )
    merged: dict[str, dict[str, Any]] = {}
    for given in (written, variables, flags):
        _lay_over(merged, given)
    _complete(merged)
    if int(merged.get("server", {}).get("workers", 1)) > 1:  # several workers need an engine that they share
        merged["engine"] = {"url": LOCAL} | merged.get("engine", {})
    return msgspec.convert(merged, Settings, strict=False)


def _read_file(path: Path | None) -> tuple[Sources, list[str]]:
    """Parse the file. Return its sections, and the mistake if it cannot be read or parsed."""
    if path is None:
        return {}, []
    try:
        return tomllib.loads(path.read_text()), []
    except OSError as error:
        return {}, [f"cannot read {path}: {error.strerror}"]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        return {}, [f"{path} is not valid TOML: {error}"]


def _lay_over(values: dict[str, Any], further: Mapping[str, Any]) -> None:
    """Merge `further` into `values`, section by section; `further` wins."""
    for key, value in further.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _lay_over(values[key], value)
        else:
            values[key] = value


def _complete(merged: dict[str, dict[str, Any]]) -> None:
    """Fill in each tenant's sections from the shared ones."""
    shared = {  # only settings that a tenant can have
        section: {key: value for key, value in merged.get(section, {}).items() if key in kind.__struct_fields__}
        for section, kind in OWN.items()
    }
    merged["tenants"] = {
        name: tenant | {section: shared[section] | tenant.get(section, {}) for section in OWN}
        for name, tenant in merged.get("tenants", {}).items()
    }


def _found(further: Check, settings: Settings) -> Sequence[str]:
    try:
        further(settings)
    except ConfigError as error:
        return error.mistakes
    return ()
