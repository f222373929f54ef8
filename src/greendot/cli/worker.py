"""Command `greendot worker`: push and jobs beside the servers, without sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import click

from greendot import __version__
from greendot.app.adapters import lock_store, make_engine, make_store, pushes
from greendot.app.config_checks import CHECKS
from greendot.app.jobs import JobServices, make_jobs, plainly
from greendot.app.push import make_pushing
from greendot.cli._options import engine_option
from greendot.cli._settings import as_running_server, config_option, settings_from, store_shown
from greendot.cli._store import store_option
from greendot.cli.event_loop import new_event_loop
from greendot.cli.serve import STUCK_S, log_key
from greendot.clock import SystemClock
from greendot.config import Settings, strange_variables
from greendot.engine.redis.engine import RedisEngine
from greendot.engine.redis.url import without_login
from greendot.errors import ConfigError, EngineUnavailable
from greendot.jobs.scheduler import Scheduler
from greendot.node.tasks import end_by
from greendot.telemetry.log_output import set_up_logging
from greendot.telemetry.spans import recording

_STOPS = (signal.SIGINT, signal.SIGTERM)
CHECK_S = 1.0  # between two reads of the live nodes, as often as by nodes


@click.command()
@engine_option
@store_option
@config_option
def worker(engine: str | None, store: str | None, config: Path | None) -> None:
    """Send pushes and run jobs in a process without a port, until Ctrl-C or SIGTERM.

    The worker needs the Redis of the servers, or their private engine.
    """
    flags = {"engine": {"url": engine}, "store": {"url": store}}
    settings = as_running_server(settings_from(config, flags, CHECKS))
    if settings.engine.url == "memory":
        raise ConfigError(
            "a worker cannot use the memory engine, which is inside the server process. Let the server send pushes "
            "(push.in_server = true), or use a Redis for servers and workers: --engine redis://HOST:PORT"
        )
    if not (settings.pushes or settings.jobs.enabled):
        raise ConfigError(
            "the worker has nothing to do: jobs are off, and push is off or has no provider. Set jobs.enabled, or "
            "turn on push with a provider: push.fcm_credentials_file, push.apns_key_file, push.webpush_key_file "
            "or push.webhook_url."
        )
    set_up_logging(settings.server.log, settings.log, log_key(settings))
    for note in strange_variables(os.environ):
        click.echo(note)
    with recording(settings.traces), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_work(settings))


async def _work(settings: Settings) -> None:
    clock, stopping = SystemClock(), asyncio.Event()
    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    engine, store = make_engine(settings, clock), make_store(settings)
    assert isinstance(engine, RedisEngine)
    async with AsyncExitStack() as stack:
        if (lock := lock_store(settings)) is not None:
            stack.callback(os.close, lock)
        await store.start()
        stack.push_async_callback(store.close)
        await engine.observe()
        stack.push_async_callback(engine.close)
        looking = asyncio.create_task(_keep_checking(engine))
        stack.callback(looking.cancel)
        if settings.pushes:
            pushing = make_pushing(settings, engine, store, clock)
            pushing.worker.start()
            stack.push_async_callback(pushing.close)
        around = JobServices(plainly(store, engine), pushes(settings))
        scheduler = Scheduler(store, make_jobs(settings, store, engine, around), clock, settings.jobs.lease_s)
        scheduler.start()
        stack.push_async_callback(scheduler.close)
        where = f"Engine: {without_login(settings.engine.url)}.  Store: {store_shown(settings)}."
        click.echo(f"Greendot {__version__} worker is ready.  {where}  Stop with Ctrl-C.")
        sys.stdout.flush()
        await stopping.wait()
        for number in _STOPS:  # a second signal ends the process at once
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        end_by(STUCK_S)
    click.echo("Stopped.", err=True)


async def _keep_checking(engine: RedisEngine) -> None:
    """Refresh the list of live nodes regularly. Never return.

    Nodes do this by themselves. A worker is no node: without the refresh it would count the sessions of a dead node.
    """
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            await engine.refresh_nodes()
        except EngineUnavailable:
            pass  # presence is unknown until the engine answers
