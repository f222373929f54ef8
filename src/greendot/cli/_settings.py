"""Settings of the command line, with the files of a dev server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from greendot.config import LOCAL, Api, Check, Settings, load
from greendot.engine.redis import url
from greendot.errors import ConfigError
from greendot.ops.local_engine import running_url

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with settings.",
)


def settings_from(
    config: Path | None, flags: Mapping[str, Mapping[str, Any]], checks: Sequence[Check] = ()
) -> Settings:
    """Load the settings of this call. Raise ConfigError with the mistakes."""
    return load(config, os.environ, given(flags), checks)


def given(flags: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the flags that were given; others are None and are left out."""
    found = {section: {key: value for key, value in of.items() if value is not None} for section, of in flags.items()}
    return {section: of for section, of in found.items() if of}


def store_shown(settings: Settings) -> str:
    """Return the place of the store, without user and password."""
    return url.without_login(settings.store.url) if settings.on_postgres else settings.store_path


def dev_file(settings: Settings, name: str) -> Path:
    return Path(settings.server.data_dir) / name


def dev_value(settings: Settings, name: str) -> tuple[str, bool]:
    """Return a generated value kept in the data directory, and whether it is new. Raise ConfigError on file errors."""
    path = dev_file(settings, name)
    if kept := _kept(path):
        return kept, False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        value = secrets.token_hex(32)
        # Readable by its owner only, from the first byte on.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)  # an empty file may exist with another mode
            file.write(value + "\n")
    except OSError as error:
        raise ConfigError(f"cannot save the generated {name} in {path}: {error.strerror}") from None
    return value, True


def dev_secret(settings: Settings) -> str:
    """Return the secret that a dev server keeps in `server.data_dir`; empty if there is none."""
    return _kept(dev_file(settings, "secret"))


def as_running_server(settings: Settings) -> Settings:
    """Return the settings as the server that runs in this data folder has them: dev secret and private engine.

    Secret and engine that are set stay. Without a running server, a private engine is as empty as one in memory.
    """
    auth, engine = settings.auth, settings.engine
    if not auth.secret:
        auth = msgspec.structs.replace(auth, secret=dev_secret(settings))
    if engine.url in ("memory", LOCAL):
        engine = msgspec.structs.replace(engine, url=running_url(settings.server.data_dir) or "memory")
    return msgspec.structs.replace(settings, auth=auth, engine=engine)


def with_dev_key(settings: Settings) -> Settings:
    """Return the settings with the dev server's API key, if there is one and no other is set."""
    if settings.api.key:
        return settings
    return msgspec.structs.replace(settings, api=Api(_kept(dev_file(settings, "api-key"))))


def _kept(path: Path) -> str:
    """Return the text of the file; empty if there is none. Raise ConfigError if it cannot be read."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {error}. Remove the file: `greendot serve --dev` creates a new one."
        ) from None
