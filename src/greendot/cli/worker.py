"""`greendot worker`: push without sockets, beside the servers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import click
import uvloop

from greendot import __version__
from greendot.assembly import looks, make_engine, make_store
from greendot.cli.config import config_option, settings_from, store_shown, with_dev_secret
from greendot.cli.logs import set_up_logging
from greendot.cli.serve import log_key
from greendot.clock import SystemClock
from greendot.engine.redis.engine import RedisEngine
from greendot.engine.redis.observing import Observer
from greendot.engine.redis.url import without_login
from greendot.errors import ConfigError
from greendot.push.facts import Facts
from greendot.push_assembly import Pushing
from greendot.settings import Settings, strange_variables


@click.command()
@click.option("--engine", metavar="URL", help="The servers' engine: redis://HOST:PORT.")
@click.option("--store", metavar="URL", help="The servers' store: sqlite:///FILE or postgresql://….")
@config_option
def worker(engine: str | None, store: str | None, config: Path | None) -> None:
    """Push to those who are away until Ctrl-C or SIGTERM, beside servers or in their place (push.in_server = false)."""
    flags = {"engine": {"url": engine}, "store": {"url": store}}
    settings = with_dev_secret(settings_from(config, flags, looks()))
    if settings.engine.url == "memory":
        raise ConfigError(
            "the memory engine lives inside the server process, and nobody else knows who is here: let the server push "
            "(push.in_server = true), or give all of them a Redis: --engine redis://HOST:PORT"
        )
    if not settings.pushes:
        raise ConfigError(
            "nobody would be pushed to: no provider is set up (push.fcm_credentials_file, push.apns_key_file, "
            "push.webpush_key_file, push.webhook_url), or push.enabled is false."
        )
    set_up_logging(settings.server.log, log_key(settings))
    for note in strange_variables(os.environ):
        click.echo(note)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(settings))


async def _work(settings: Settings) -> None:
    clock, stopping = SystemClock(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    engine, store = make_engine(settings, clock), make_store(settings)
    assert isinstance(engine, RedisEngine)
    await store.start()
    try:
        await engine.observe()
        try:
            pushing = Pushing(settings, store, Facts(Observer(engine, clock), store).look, clock)
            pushing.worker.start()
            where = f"Engine: {without_login(settings.engine.url)}.  Store: {store_shown(settings)}."
            click.echo(f"Greendot {__version__} pushes.  {where}  Stop with Ctrl-C.")
            await stopping.wait()
            await pushing.close()
        finally:
            await engine.close()
    finally:
        await store.close()
    click.echo("Stopped.", err=True)
