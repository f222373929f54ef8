"""Upgrade of an installation from the wheel of the previous release: data and connected clients continue.

Clients of the previous release are connected during the upgrade. The server is stopped, the wheel of this version is
installed over the previous one, and the server starts on the same store and port.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from greendot.auth.tokens import Tokens
from release.artefacts import Failed, build_python, run
from release.quickstart import Lines, running

PROGRAMS = Path(__file__).parent / "upgrade_clients"
SECRET = "a secret for the upgrade, long enough"
API_KEY = "an API key for the upgrade, long enough"
PATIENCE_S = 60.0  # for any step, on a machine that is busy
READY = re.compile(r"Stop with Ctrl-C")

# Responses that must have the same data after the upgrade.
KEPT = (
    "/v1/rooms",
    "/v1/rooms/hall/messages?after=0",
    "/v1/rooms/club/members",
    "/v1/users/ann/inbox",
    "/v1/users/bob/inbox",
    "/v1/users/ann/devices",
    "/v1/users/ann/push",
)


def build_previous(source: Path, version: str, folder: Path) -> Path:
    """Build the wheel of an earlier source. Its version precedes the one of this source, so pip replaces it."""
    init = source / "src" / "greendot" / "__init__.py"
    text, changes = re.subn(r'^__version__ = ".*"$', f'__version__ = "{version}"', init.read_text(), flags=re.MULTILINE)
    if changes != 1:
        raise Failed(f"{init} has no line with __version__")
    init.write_text(text)
    (wheel,) = build_python(folder, source, sdist=False)
    return wheel


class Installation:
    """Environment with one version of Greendot at a time, the files of its server, and clients of the first version."""

    def __init__(self, folder: Path, wheel: Path, *, registry: bool) -> None:
        """Install the wheel. Without `registry`, the dependencies are those of this environment."""
        self.folder = folder
        self._registry = registry
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        self.python = folder / "venv" / "bin" / "python"
        if not registry:
            (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
            (site / "borrowed.pth").write_text(f"{next(path for path in sys.path if path.endswith('site-packages'))}\n")
        self.install(wheel)
        # Clients run from a copy: the upgrade replaces the files of the installation.
        (found,) = (folder / "venv" / "lib").glob("python*/site-packages/greendot")
        self.previous = folder / "previous"
        shutil.copytree(found, self.previous / "greendot")
        shutil.copy(found / "web" / "greendot.js", folder / "greendot.mjs")
        (folder / "data").mkdir()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]

    def install(self, wheel: Path) -> None:
        """Install the wheel over the version that is there, as an operator does."""
        offline = () if self._registry else ("--no-deps", "--no-index")
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--upgrade", *offline)
        run(*pip, "--disable-pip-version-check", wheel)

    @property
    def stores_last_seen(self) -> bool:
        """Return whether the previous release stores last-seen times. 0.1.0-rc.1 has them in memory only."""
        return (self.previous / "greendot" / "store" / "schema" / "sqlite" / "0026_last_seen.sql").exists()

    @property
    def version(self) -> str:
        # Python reads .pth files after its own packages: the clone is behind the installed wheel.
        program = "import greendot; print(greendot.__version__, greendot.__file__)"
        version, _, where = run(self.python, "-c", program, cwd=self.folder).strip().partition(" ")
        if not Path(where).is_relative_to(self.folder):
            raise Failed(f"the environment imports Greendot from {where}")
        return version

    @contextmanager
    def serving(self, **settings: str) -> Iterator[None]:
        """Run the installed server on the data of this installation. It must end cleanly."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GREENDOT_", "PYTHONPATH"))}
        given = {
            "GREENDOT_AUTH_SECRET": SECRET,
            "GREENDOT_API_KEY": API_KEY,
            "GREENDOT_SERVER_DATA_DIR": str(self.folder / "data"),
            "GREENDOT_PRESENCE_CLEAN_GRACE_S": "0.2",
            "PYTHONUNBUFFERED": "1",
        }
        command = [self.python.parent / "greendot", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=clean | given | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = Lines(process)
        try:
            lines.until(READY, PATIENCE_S)
            yield
            process.send_signal(signal.SIGTERM)
            if code := process.wait(PATIENCE_S):
                raise Failed(f"the server ended with {code}:\n{lines.rest()}")
        finally:
            process.kill()
            process.wait()
            lines.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send an API request and return the response. Raise Failed if the server refuses it."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=PATIENCE_S
            ) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            with error:
                raise Failed(f"{method} {path} answered {error.code}: {error.read().decode()}") from None

    @contextmanager
    def python_client(self, user: str, *arguments: str, upgraded: bool = False) -> Iterator[Lines]:
        """Run a program with the Python client of the previous release, or with the installed one."""
        token = Tokens(SECRET).make(user, time.time_ns() // 1_000_000, 3600, name=user.capitalize())
        command = (self.python, PROGRAMS / "client.py", f"ws://127.0.0.1:{self.port}/v1/connect", token, *arguments)
        path = {} if upgraded else {"PYTHONPATH": str(self.previous)}
        with running(*command, cwd=self.folder, **path) as lines:
            yield lines

    @contextmanager
    def javascript_client(self, user: str) -> Iterator[Lines]:
        """Run a program with the JavaScript client of the previous release."""
        token = Tokens(SECRET).make(user, time.time_ns() // 1_000_000, 3600, name=user.capitalize())
        # Node 20 needs the flag for WebSocket; later versions accept it, too.
        node = ("node", "--experimental-websocket", PROGRAMS / "client.mjs", self.folder / "greendot.mjs")
        path = f"{Path(sys.prefix, 'node')}:{os.environ['PATH']}"
        with running(*node, f"http://127.0.0.1:{self.port}", token, cwd=self.folder, PATH=path) as lines:
            yield lines


def upgrade(installed: Installation, wheel: Path, **settings: str) -> str:
    """Fill a server, upgrade it to the wheel while clients are connected, and check data and clients."""
    before = installed.version
    with ExitStack() as stack:
        with installed.serving(**settings):
            clients = _fill(installed, stack)
            kept = _data(installed)
        for client in clients:
            client.until(re.compile("^waiting$"), PATIENCE_S)
        installed.install(wheel)
        if installed.version == before:
            raise Failed(f"the upgrade has left version {before}")
        with installed.serving(**settings):
            _compare(kept, _data(installed))
            _check_keys(installed)
            _check_clients(installed, clients)
    return f"{before} to {installed.version}"


def _fill(installed: Installation, stack: ExitStack) -> list[Lines]:
    """Write data of all kinds through the API and clients. Return the clients, which stay connected."""
    ask = installed.ask
    ask("PUT", "/v1/rooms/hall", {"open": True})
    ask("PUT", "/v1/rooms/club", {"open": False})
    ask("PUT", "/v1/rooms/club/members/ann", {"role": "admin"})
    ask("PUT", "/v1/rooms/club/members/bob", {"role": "member"})
    ask("PUT", "/v1/users/ann/devices/phone", {"provider": "fcm", "token": "t" * 100})
    ask(
        "PUT", "/v1/users/ann/push", {"time_zone": "Europe/Berlin", "quiet_hours": {"begins": "22:00", "ends": "07:00"}}
    )
    ask("PUT", "/v1/users/cid/status", {"status": "busy", "text": "Lunch"})
    clients = [
        stack.enter_context(installed.javascript_client("ann")),
        stack.enter_context(installed.python_client("bob")),
    ]
    for client in clients:
        client.until(re.compile("^joined$"), PATIENCE_S)
    for number in (1, 2, 3):
        ask("POST", "/v1/rooms/hall/messages", {"user": "bot", "body": f"message {number}", "key": f"k{number}"})
        for user in ("ann", "bob"):
            ask("POST", "/v1/notifications", {"user": user, "kind": "news", "body": number, "key": f"n{number}"})
    for client in clients:
        client.until(re.compile("^read 1$"), PATIENCE_S)
    with installed.python_client("dora", "leave") as dora:
        dora.until(re.compile("^left$"), PATIENCE_S)  # ended earlier, its session would stay for the grace
    _until(
        lambda: ask("GET", "/v1/users/dora/presence")["last_seen"] is not None, "the last-seen time of dora is stored"
    )
    return clients


def _data(installed: Installation) -> dict[str, Any]:
    found = {path: installed.ask("GET", path) for path in KEPT}
    if installed.stores_last_seen:
        dora = installed.ask("GET", "/v1/users/dora/presence")
        found["/v1/users/dora/presence"] = {"state": dora["state"], "last_seen": dora["last_seen"]}
    return found


def _compare(before: object, after: object, where: str = "") -> None:
    """Check that all data from before is there. A later version may add fields."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            _compare(value, after.get(name, "(missing)"), f"{where} {name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            _compare(old, new, f"{where}[{number}]")
    elif before is not None and before != after:  # null is a time that is not there yet
        raise Failed(f"{where.strip()} was {before!r} before the upgrade and is {after!r} after it")


def _check_keys(installed: Installation) -> None:
    """Repeat calls from before the upgrade under their keys. They must have no second effect."""
    again = installed.ask("POST", "/v1/rooms/hall/messages", {"user": "bot", "body": "message 2", "key": "k2"})
    _compare(2, again["seq"], "the message that is sent again: seq")
    again = installed.ask("POST", "/v1/notifications", {"user": "ann", "kind": "news", "body": 2, "key": "n2"})
    _compare({"seq": 2, "new": False}, again, "the notification that is sent again:")


def _check_clients(installed: Installation, clients: list[Lines]) -> None:
    """Check that the clients have returned, have missed nothing, and can still do everything."""
    ask = installed.ask
    # Some clients are still on their way back: they fetch this message later.
    ask("POST", "/v1/rooms/hall/messages", {"user": "bot", "body": "after the upgrade"})

    def bodies() -> list[str]:
        return [message["body"] for message in ask("GET", "/v1/rooms/hall/messages?after=0")["messages"]]

    # Each client has sent a message without a connection.
    _until(
        lambda: {"queued by ann", "queued by bob"} <= {*bodies()}, "the messages sent without a connection are stored"
    )
    for user in ("ann", "bob"):
        ask("POST", "/v1/notifications", {"user": user, "kind": "news", "body": 4, "key": "n4"})
    for client in clients:
        client.until(re.compile("^read 4$"), PATIENCE_S)
    for user in ("ann", "bob"):
        inbox = ask("GET", f"/v1/users/{user}/inbox")
        _compare({"unread": 2, "head": 4}, inbox, f"the inbox of {user}:")
    with installed.python_client("cid", upgraded=True) as cid:
        cid.until(re.compile("^state busy Lunch$"), PATIENCE_S)
    ask("POST", "/v1/rooms/hall/messages", {"user": "bot", "body": "end"})
    stored = [
        (message["seq"], message["body"]) for message in ask("GET", "/v1/rooms/hall/messages?after=0")["messages"]
    ]
    for client in clients:
        received = json.loads(client.until(re.compile(r"^received (.*)$"), PATIENCE_S)[1])
        _compare([list(one) for one in stored], received, "the messages that a client has received:")
    if len({body for _, body in stored}) != len(stored):
        raise Failed(f"a message is stored twice: {stored}")


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.05)
