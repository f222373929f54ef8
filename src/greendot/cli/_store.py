"""How commands get at the store: past the servers, beside them, or when none runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from greendot.app.adapters import make_store
from greendot.cli._settings import settings_from
from greendot.config import Settings
from greendot.errors import ConfigError
from greendot.store.port import Store

INTERRUPTED = 130  # the exit code of what was ended by Ctrl-C, as shells have it

T = TypeVar("T")

store_option = click.option("--store", metavar="URL", help="The servers' store: sqlite:///FILE or postgresql://….")


def dead_letter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which of what could not be sent."""
    some = click.option("--id", "ids", type=int, multiple=True, metavar="ID", help="One dead letter; may be repeated.")
    return some(click.option("--all", "everything", is_flag=True, help="All dead letters.")(command))


def wanted_letters(ids: tuple[int, ...], everything: bool, lists: str) -> tuple[int, ...] | None:
    """Those that were named; None: all. `lists` is the command that shows them."""
    if bool(ids) == everything:
        raise click.UsageError(f"Give --id (`{lists}` shows them), or --all.")
    return None if everything else ids


def store_settings(store: str | None, config: Path | None, engine: str | None = None) -> Settings:
    """ConfigError if there is no store to look into: looking makes none."""
    settings = settings_from(config, {"store": {"url": store}, "engine": {"url": engine}})
    path = settings.store_path
    if path == ":memory:":
        raise ConfigError("a store in memory lives inside the server process: ask the server, over HTTP.")
    if path and not Path(path).exists():
        raise ConfigError(
            f"there is no store {path} here. Call this in the server's folder, or give the server's store: --store URL"
        )
    return settings


def on_store(settings: Settings, look: Callable[[Store], Awaitable[T]]) -> T:
    return on_a_loop(_opened(settings, look))


def on_a_loop(work: Awaitable[T]) -> T:
    logging.getLogger("greendot").addHandler(logging.NullHandler())  # what matters is raised, and said once

    async def whole() -> T:
        return await work

    try:
        return asyncio.run(whole())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def _opened(settings: Settings, look: Callable[[Store], Awaitable[T]]) -> T:
    store = make_store(settings)
    await store.start()
    try:
        return await look(store)
    finally:
        await store.close()
