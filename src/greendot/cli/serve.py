"""Command `greendot serve`: run a server until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from greendot import __version__
from greendot.app.collector import Collector
from greendot.app.collector_model import NodeLoad
from greendot.app.config_checks import SERVER_CHECKS
from greendot.app.server import Greendot, load_parts
from greendot.cli._settings import config_option, dev_file, dev_value, settings_from, store_shown
from greendot.cli.event_loop import new_event_loop
from greendot.config import LOCAL, Settings, strange_variables
from greendot.config.fields import check_length, refuse
from greendot.config.pusher import Pusher
from greendot.engine.redis.url import without_login
from greendot.errors import ConfigError
from greendot.ids import hash_key
from greendot.node.tasks import end_by
from greendot.ops.local_engine import LocalEngine, local_engine
from greendot.ops.supervisor import Supervisor, reserve
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.log_output import set_up_logging
from greendot.telemetry.spans import recording

STUCK_S = 10.0  # if a server has not ended this number of seconds after its drain, it is stuck and is killed
STOPPING = "Stopping: asking clients to reconnect …"
STOPPED = "Stopped."
DEV_APP, DEV_KEY = "1", "greendot-dev"  # id and key of the Pusher app of --dev on loopback
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_ADDRESSES = ("127.0.0.1", "localhost", "::1")

Reread = Callable[[], Settings]  # reads the settings again from their sources


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a server to a command.

    The command gets the values as its argument `flags`, grouped by section like the settings:
    `flags["server"]["port"]`.
    """

    @click.option("--host", help="Address to listen on. [default: 0.0.0.0; 127.0.0.1 with --dev]")
    @click.option("--port", type=int, help="Port to listen on. [default: 8000]")
    @click.option(
        "--engine",
        metavar="URL",
        help="Engine for presence and typing: memory, local (a private Valkey or Redis that this command starts) or "
        "redis://HOST:PORT. [default: memory; local with several workers]",
    )
    @click.option("--store", metavar="URL", help="Store for records: sqlite:///FILE or postgresql://HOST/DATABASE.")
    @click.option("--workers", type=int, metavar="N", help="Number of server processes on the port. [default: 1]")
    @click.option(
        "--dev",
        is_flag=True,
        default=None,
        help="Development mode: demo page, dev tokens, three open rooms; on loopback, or with a printed gate token.",
    )
    @wraps(command)
    def called(engine: str | None, store: str | None, **given: Any) -> None:
        server = {name: given.pop(name) for name in ("host", "port", "workers", "dev")}
        flags = {"server": server | {"dev": server["dev"] or None}, "engine": {"url": engine}, "store": {"url": store}}
        command(flags=flags, **given)

    return called


@click.command()
@server_options
@config_option
def serve(flags: dict[str, dict[str, Any]], config: Path | None) -> None:
    """Run a server until Ctrl-C or SIGTERM."""
    settings = settings_from(config, flags, SERVER_CHECKS)
    reread = partial(settings_from, config, flags, SERVER_CHECKS)
    notes = strange_variables(os.environ)
    if settings.server.dev:
        settings = _for_dev(settings, flags["server"]["host"], notes)
    elif not settings.api.key:
        notes.append(
            "No API key is set (GREENDOT_API_KEY). The HTTP API accepts only keys from `greendot keys create`."
        )
    set_up_logging(settings.server.log, settings.log, log_key(settings))
    _set_up_process()
    if settings.engine.url == LOCAL:
        with local_engine(settings.server.data_dir) as companion:
            engine = msgspec.structs.replace(settings.engine, url=companion.url)
            _serve_by_workers(msgspec.structs.replace(settings, engine=engine), reread, notes, companion)
    elif settings.server.workers > 1:
        _serve_by_workers(settings, reread, notes)
    else:
        _on_a_loop(settings, _serve_alone(settings, reread, notes))


def _for_dev(settings: Settings, host: str | None, notes: list[str]) -> Settings:
    """Return the settings for `--dev`: the server listens on `host` or `server.dev_host`, and the dashboard is on.

    If the settings have no secret or no API key, use generated ones. If other machines can reach the server, it has a
    gate token.
    """
    server = msgspec.structs.replace(settings.server, host=host or settings.server.dev_host)
    is_exposed = server.host not in LOOPBACK_ADDRESSES
    if is_exposed:
        server = msgspec.structs.replace(server, dev_gate=server.dev_gate or secrets.token_urlsafe(24))
        refuse(check_length("api.key", settings.api.key))
    secret, key = settings.auth.secret, settings.api.key
    if not secret:
        secret, _ = dev_value(settings, "secret")
    if not key:
        key, new = dev_value(settings, "api-key")
        where = dev_file(settings, "api-key")
        notes.append(f"API key: {key} (shown once; kept in {where})" if new else f"API key: in {where}")
    auth = msgspec.structs.replace(settings.auth, secret=secret)
    api = msgspec.structs.replace(settings.api, key=key)
    # Accept only host names of loopback, such as localhost. Otherwise the owner of a foreign page could point the
    # page's host name at this server, so that the page gets tokens (DNS rebinding). With a gate, such a page gets
    # none: it has no cookie.
    door = msgspec.structs.replace(settings.door, hosts=settings.door.hosts or (() if is_exposed else LOOPBACK))
    admin = msgspec.structs.replace(settings.admin, enabled=True)
    pusher = _pusher_for_dev(settings, notes, is_exposed=is_exposed)
    centrifuge = msgspec.structs.replace(settings.centrifuge, enabled=True)
    notes.append("Centrifuge: /connection/websocket with dev tokens, /api with the API key")
    return msgspec.structs.replace(
        settings, server=server, auth=auth, api=api, door=door, admin=admin, pusher=pusher, centrifuge=centrifuge
    )


def _pusher_for_dev(settings: Settings, notes: list[str], *, is_exposed: bool) -> Pusher:
    """Return an app of the Pusher protocol with a generated secret, unless the settings have one or turn it off.

    If other machines can reach the server, the key is generated, too: it lets clients read open channels without the
    gate token.
    """
    if settings.pusher_apps or not settings.pusher.enabled:
        return settings.pusher
    secret, new = dev_value(settings, "pusher-secret")
    shown = secret if new else f"in {dev_file(settings, 'pusher-secret')}"
    key = dev_value(settings, "pusher-key")[0] if is_exposed else DEV_KEY
    notes.append(f"Pusher:  app id {DEV_APP}, key {key}, secret {shown}")
    return msgspec.structs.replace(settings.pusher, app_id=DEV_APP, key=key, secret=secret)


def _serve_by_workers(
    settings: Settings, reread: Reread, notes: list[str], companion: LocalEngine | None = None
) -> None:
    load_parts(settings)
    with reserve(settings.server.host, settings.server.port) as held:
        port = held.getsockname()[1]
        server = msgspec.structs.replace(settings.server, port=port)
        resolved = msgspec.structs.replace(settings, server=server)

        def work(number: int, ready: Callable[[], None]) -> None:
            held.close()  # a worker listens on its own socket; only the parent reserves the port
            _on_a_loop(resolved, _serve_as_worker(resolved, reread, number, ready))

        Supervisor(
            work,
            server.workers,
            patience_s=_patience_s(settings),
            on_ready=lambda: _announce(settings, port, notes, companion),
            on_stop=lambda: click.echo(STOPPING, err=True),
            passed_on=(signal.SIGHUP,) if _reloads(settings) else (),
            companion=companion,
        ).run()
    click.echo(STOPPED, err=True)


def _on_a_loop(settings: Settings, life: Coroutine[Any, Any, None]) -> None:
    with recording(settings.traces), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(life)


async def _serve_as_worker(settings: Settings, reread: Reread, number: int, ready: Callable[[], None]) -> None:
    greendot = Greendot(settings)
    greendot.share_ports(number)
    await _until_signal(greendot, reread, (signal.SIGTERM,), ready)
    # Keep the handler of SIGTERM. A worker can get SIGTERM twice, and the second signal must not interrupt the drain.
    await greendot.stop()


async def _serve_alone(settings: Settings, reread: Reread, notes: list[str]) -> None:
    greendot = Greendot(settings)
    numbers = signal.SIGINT, signal.SIGTERM
    await _until_signal(greendot, reread, numbers, lambda: _announce(settings, greendot.server.port, notes))
    for number in numbers:  # a second signal ends the process at once
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
    end_by(_patience_s(settings))
    click.echo(STOPPING, err=True)
    await greendot.stop()
    click.echo(STOPPED, err=True)


def _patience_s(settings: Settings) -> float:
    """Return the seconds after the stop signal at which a server that still runs is killed."""
    return settings.server.drain_notice_s + settings.server.drain_s + STUCK_S


def _reloads(settings: Settings) -> bool:
    """Return whether SIGHUP reads files again. Otherwise it ends the process, as when its terminal is closed."""
    return bool(settings.tls.cert or settings.pusher_apps)


def _reload(greendot: Greendot, reread: Reread) -> None:
    """Read the certificate and the apps of foreign protocols again. Wrong settings leave the apps as they are."""
    try:
        settings = None if greendot.settings.server.dev else reread()
    except (ConfigError, click.ClickException) as error:
        log(log_events.SETTINGS_KEPT, reason=error)
        settings = None
    greendot.reload(settings)


async def _until_signal(
    greendot: Greendot, reread: Reread, numbers: tuple[signal.Signals, ...], ready: Callable[[], None]
) -> None:
    """Start the server, call `ready` when clients can connect, and return when one of the signals arrives."""
    stopping = asyncio.Event()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    if _reloads(greendot.settings):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, greendot, reread)
    await greendot.start()
    ready()
    node = greendot.node
    Collector(lambda: NodeLoad(len(node.registry.connections), node.hub.topics)).start()
    await stopping.wait()


def _announce(settings: Settings, port: int, notes: list[str], companion: LocalEngine | None = None) -> None:
    shown = _shown(settings.server.host)
    store = store_shown(settings)
    workers = f"{settings.server.workers} workers.  " if settings.server.workers > 1 else ""
    s = "s" if settings.tls.cert else ""
    click.echo(f"Greendot {__version__} is ready.  WebSocket: ws{s}://{shown}:{port}/v1/connect")
    if settings.server.dev:
        gate = f"?gate={settings.server.dev_gate}" if settings.server.dev_gate else ""
        click.echo(f"Open  http{s}://{shown}:{port}/{gate}  in two browser tabs.")
        click.echo(f"Playground:  http{s}://{shown}:{port}/playground{gate}  (sends any frame, shows all frames)")
        if settings.server.host not in LOOPBACK_ADDRESSES:
            click.secho(_exposed(settings), err=True, fg="red", bold=True)
    if settings.admin.enabled:
        host, admin_port = _shown(settings.admin.host or settings.server.host), settings.admin.port or port
        key = "the API key" if settings.server.dev else "an admin key"
        click.echo(f"Dashboard:  http{s}://{host}:{admin_port}/admin  (asks for {key})")
    engine = str(companion) if companion is not None else without_login(settings.engine.url)
    click.echo(f"Engine: {engine}.  Store: {store}.  {workers}Stop with Ctrl-C.")
    for note in notes:
        click.echo(note)
    sys.stdout.flush()


def _exposed(settings: Settings) -> str:
    """Return the warning of a development server that other machines can reach."""
    return (
        f"WARNING: this development server listens on {settings.server.host}, so other machines can reach it. Never "
        "use it in production or on a public address. The demo and its tokens require the gate token in the address "
        "above. On another machine, write the name of this machine in that address. Programs send it as "
        "`Authorization: Bearer TOKEN`."
    )


def _shown(host: str) -> str:
    """Return the host for a URL that works in a browser on this machine."""
    everywhere = ("0.0.0.0", "::")  # noqa: S104  (nothing is bound here)
    return "127.0.0.1" if host in everywhere else f"[{host}]" if ":" in host else host


def log_key(settings: Settings) -> bytes | None:
    """Return the key for hashing the ids in log lines. None: log plain ids."""
    if settings.privacy.log_ids == "plain":
        return None
    return hash_key(settings.privacy.hash_key, settings.auth.secret) or secrets.token_bytes(32)


def _set_up_process() -> None:
    """Raise the limit of open files. Make garbage collections rare until `Collector` controls them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.freeze()  # imported objects are never freed, so the collector need not visit them
    # Most objects that are made during the start are not freed either. With the default threshold of 700 new objects,
    # the collector would visit these objects again and again.
    gc.set_threshold(50_000, 50, 50)
