"""Access of commands to the store, without a server: while servers run, or when none does."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from greendot.app.adapters import make_store
from greendot.cli._settings import config_option, settings_from
from greendot.config import Settings
from greendot.errors import ConfigError
from greendot.store.port import Store

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells

T = TypeVar("T")

store_option = click.option("--store", metavar="URL", help="Store of the servers: sqlite:///FILE or postgresql://…")


class StoreAccess:
    """Store of a command. Its settings are read on first use, after the command has checked its arguments."""

    def __init__(self, url: str | None, config: Path | None, engine: str | None = None) -> None:
        self.config = config
        self._flags = {"store": {"url": url}, "engine": {"url": engine}}

    @cached_property
    def settings(self) -> Settings:
        """Return the settings. Raise ConfigError if there is no store: commands create none."""
        settings = settings_from(self.config, self._flags)
        path = settings.store_path
        if path == ":memory:":
            raise ConfigError(
                "a store in memory is inside the server process and cannot be read from here. Use the HTTP "
                "API of the server."
            )
        if path and not Path(path).exists():
            raise ConfigError(
                f"store {path} not found. Run this command in the working directory of the server, or give the "
                "server's store: --store URL"
            )
        return settings

    def run(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Open the store, run `work` and close the store."""
        return on_a_loop(self._run(work))

    async def _run(self, work: Callable[[Store], Awaitable[T]]) -> T:
        store = make_store(self.settings)
        await store.start()
        try:
            return await work(store)
        finally:
            await store.close()


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --store and --config. The command gets both as a `StoreAccess`, with --engine if it has that option."""

    @store_option
    @config_option
    @wraps(command)
    def called(store: str | None, config: Path | None, engine: str | None = None, **rest: Any) -> None:
        command(access=StoreAccess(store, config, engine), **rest)

    return called


def on_a_loop(work: Awaitable[T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run `work` to its end. Ctrl-C ends the process with the exit code of an interrupt."""
    logging.getLogger("greendot").addHandler(logging.NullHandler())  # errors are raised, and printed once

    async def whole() -> T:
        return await work

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(whole())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
