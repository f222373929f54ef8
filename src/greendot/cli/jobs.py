"""Command `greendot jobs`: schedules and results of jobs, and running one by hand."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import click
import msgspec

from greendot.app.adapters import make_engine, make_store, pushes
from greendot.app.jobs import JOBS, JobServices, all_jobs, plainly
from greendot.cli._group import Group
from greendot.cli._options import engine_option, json_option, print_json
from greendot.cli._settings import as_running_server
from greendot.cli._store import INTERRUPTED, StoreAccess, on_a_loop, store_options
from greendot.cli._tables import NOTHING, ago, duration, print_table, table
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.engine.port import Engine
from greendot.engine.redis.engine import RedisEngine
from greendot.errors import ConfigError
from greendot.jobs.job import REPORT_S, ProgressReport
from greendot.jobs.runner import Runner
from greendot.store.jobs import JobEnd, JobRun, JobState
from greendot.store.port import Store

FAILED = 1  # exit code of a run that failed, or did not begin
MOST_SHOWN = 1_000
_ENGINE = "the memory engine is inside the server process, so only the server can run this job"
_ASK_ENGINE = ("unread-reminder", "sweep")  # jobs that need the presence in the engine


@click.group(cls=Group)
def jobs() -> None:
    """List and run jobs. Each job runs on one server at a time."""


@jobs.command("list")
@json_option
@store_options
def list_(as_json: bool, access: StoreAccess) -> None:
    """List the jobs: schedule, next run, last run and its result."""

    async def look(store: Store) -> tuple[list[JobState], list[JobRun]]:
        states = await store.jobs()
        return states, [run for state in states for run in await store.job_runs(state.name, 1)]

    states, runs = access.run(look)
    last = {run.name: run for run in runs}
    if as_json:
        found = [msgspec.to_builtins(state) | {"last": msgspec.to_builtins(last.get(state.name))} for state in states]
        print_json({"jobs": found})
        return
    now = SystemClock().now_ms()
    rows = [_job_row(state, last.get(state.name), now) for state in states]
    rows += [
        (name, NOTHING, "not scheduled by a server", *[NOTHING] * 4)
        for name in JOBS
        if name not in {state.name for state in states}
    ]
    click.echo(table(("JOB", "SCHEDULE", "NEXT", "LAST", "TOOK", "RESULT", "DETAILS"), rows))


@jobs.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, MOST_SHOWN), default=20, show_default=True, help="Runs to show.")
@json_option
@store_options
def history(name: str | None, limit: int, as_json: bool, access: StoreAccess) -> None:
    """List the last runs of one job or of all jobs, the newest first."""
    if name is not None:
        _check(name)
    runs = access.run(lambda store: store.job_runs(name, limit))
    if as_json:
        print_json({"runs": runs})
        return
    now = SystemClock().now_ms()
    rows = [(run.name, str(run.fence), *_run_cells(run, now)) for run in runs]
    print_table(("JOB", "RUN", "STARTED", "TOOK", "RESULT", "DETAILS"), rows, "No runs yet.")


@jobs.command()
@click.argument("name")
@engine_option
@store_options
def run(name: str, access: StoreAccess) -> None:
    """Run a job now, unless it is already running. Ctrl-C stops the job; its next run continues there."""
    _check(name)
    settings = as_running_server(access.settings)
    if settings.engine.url == "memory" and name in _ASK_ENGINE:
        raise ConfigError(f"{_ENGINE}. If the servers share a Redis, give its URL: --engine redis://HOST:PORT")
    ended = on_a_loop(_run(settings, name))
    if ended is None:
        click.echo(f"{name} is already running. See its progress with: greendot jobs list", err=True)
        sys.exit(FAILED)
    click.echo(f"{name}: {ended.outcome}. {ended.note[:1].upper()}{ended.note[1:]}.")
    if ended.outcome == "stopped":
        click.echo("The next run continues from there.")
        sys.exit(INTERRUPTED)
    sys.exit(0 if ended.outcome == "ok" else FAILED)


def _check(name: str) -> None:
    if name not in JOBS:
        raise click.UsageError(f"There is no job {name!r}. Valid names: {', '.join(JOBS)}.")


async def _run(settings: Settings, name: str) -> JobEnd | None:
    async with _opened(settings) as (store, engine):
        around = JobServices(plainly(store, engine), pushes(settings))
        (planned,) = [one for one in all_jobs(settings, store, engine, around) if one.job.name == name]
        runner = Runner(store, SystemClock(), settings.jobs.lease_s)
        if name not in {state.name for state in await store.jobs()}:
            await runner.plan([planned])
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _stop, runner, name)
        return await runner.run(planned, early=True, telling=_progress_report())


def _stop(runner: Runner, name: str) -> None:
    """Stop the run at its next step on the first Ctrl-C. A second one ends the process at once."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    click.echo("Stopping …", err=True)
    if name in runner.runs:
        runner.runs[name].stop()


def _progress_report() -> ProgressReport:
    def report(name: str, done: int) -> None:
        click.echo(f"{name}: {done:,} done …", err=True)

    return ProgressReport(report, 1.0 if sys.stderr.isatty() else REPORT_S)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Store, Engine]]:
    store, engine = make_store(settings), make_engine(settings, SystemClock())
    await store.start()
    try:
        if isinstance(engine, RedisEngine):
            await engine.observe()
        try:
            yield store, engine
        finally:
            if isinstance(engine, RedisEngine):
                await _sent(engine)
                await engine.close()
    finally:
        await store.close()


async def _sent(engine: RedisEngine) -> None:
    """Wait until all messages have reached Redis. The command ends at once, and unsent messages would be lost."""
    await engine.bus.drained()
    await asyncio.gather(*(server.call("PING") for server in engine.servers.all.values()), return_exceptions=True)


def _job_row(state: JobState, last: JobRun | None, now: int) -> tuple[str, ...]:
    cells = _run_cells(last, now) if last is not None else (NOTHING,) * 4
    upcoming = f"in {duration(state.next_at - now)}" if state.next_at > now else "now"
    if state.next_at - now >= 86_400_000:
        upcoming = datetime.fromtimestamp(state.next_at / 1000).astimezone().isoformat(" ", "seconds")
    if state.holder is not None:
        upcoming = "running"
    return (state.name, state.schedule, upcoming, *cells)


def _run_cells(run: JobRun, now: int) -> tuple[str, str, str, str]:
    took = duration((now if run.ended_at is None else run.ended_at) - run.started_at)
    what = run.note or (f"{run.done} done" if run.done else NOTHING)
    return ago(run.started_at, now), took, run.outcome, what
