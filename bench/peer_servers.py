"""Peers of the benchmark: start command, dialect and version of each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peer_install import SOURCES, Home, nchan_module
from serverd import READY_WITHIN_S, Access, Cores, Server, Trouble, end, free_port, spawn


@dataclass(frozen=True)
class Start:
    """Command of a server with its additional environment."""

    command: Sequence[object]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """Server that is compared with Greendot."""

    name: str  # on the command line
    label: str  # in tables and plots
    dialect: str  # in load/dialects.c
    kind: str  # source of its packages, in peer_install.py
    start: Callable[[Home, Path, int, Access], Start]
    ready: str = "/"  # path that answers when the server is ready


def _node(program: str) -> Callable[[Home, Path, int, Access], Start]:
    def start(home: Home, folder: Path, port: int, access: Access) -> Start:
        return Start(["node", SOURCES / program, port], {"NODE_PATH": str(home.node_modules), "NODE_ENV": "production"})

    return start


def _bun(home: Home, folder: Path, port: int, access: Access) -> Start:
    return Start([home.bun, SOURCES / "bun.js", port], {"NODE_ENV": "production"})


def _python(program: str) -> Callable[[Home, Path, int, Access], Start]:
    def start(home: Home, folder: Path, port: int, access: Access) -> Start:
        return Start([home.python, SOURCES / program, port])

    return start


def _nchan(home: Home, folder: Path, port: int, access: Access) -> Start:
    text = (SOURCES / "nchan.conf").read_text()
    for name, value in {"$FOLDER": folder, "$PORT": port, "$MODULE": nchan_module()}.items():
        text = text.replace(name, str(value))
    (folder / "nginx.conf").write_text(text)
    return Start(["nginx", "-p", folder, "-c", folder / "nginx.conf"])


def _centrifugo(home: Home, folder: Path, port: int, access: Access) -> Start:
    secret = {"CENTRIFUGO_TOKEN_HMAC_SECRET_KEY": access.auth_secret, "GOMAXPROCS": "1"}
    return Start([home.centrifugo, "-c", SOURCES / "centrifugo" / "config.json", "--port", port], secret)


PEERS = (
    Peer("bun", "Bun publish", "app", "npm", _bun),
    Peer("centrifugo", "Centrifugo", "centrifugo", "go", _centrifugo, ready="/health"),
    Peer("nchan", "nginx + nchan", "nchan", "debian", _nchan),
    Peer("ws", "ws (Node)", "app", "npm", _node("ws.js")),
    Peer("socketio", "Socket.IO", "socketio", "npm", _node("socketio.js")),
    Peer("python-socketio", "python-socketio", "socketio", "pypi", _python("python_socketio.py")),
    Peer("channels", "Django Channels", "app", "pypi", _python("channels_app.py")),
)


@contextmanager
def running(peer: Peer, home: Home, folder: Path, access: Access, core: Cores) -> Iterator[Server]:
    """Start the peer in its own folder, and yield it when it is ready. It is stopped at the end."""
    folder.mkdir()
    port = free_port()
    start = peer.start(home, folder, port, access)
    log = folder / "output.log"
    with log.open("w") as output:
        process = spawn(
            start.command, core, cwd=folder, env=os.environ | start.environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    server = Server(process, port, access, log)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while server.request("GET", peer.ready) == 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"{peer.label} did not start; its last output:\n{server.last_words()}")
            time.sleep(0.05)
        yield server
    finally:
        end(process)


def versions(home: Home, peers: Sequence[Peer]) -> dict[str, str]:
    """Return the versions of the peers by name."""
    names = {peer.name for peer in peers}
    found = {}
    for name, package in {"bun": "bun", "ws": "ws", "socketio": "socket.io"}.items():
        if name in names:
            found[name] = json.loads((home.node_modules / package / "package.json").read_text())["version"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (SOURCES / "requirements.txt").read_text(), re.MULTILINE))
    found |= {name: pinned[name] for name in ("python-socketio", "channels") if name in names}
    if "centrifugo" in names:
        module = (SOURCES / "centrifugo" / "go.mod").read_text()
        found["centrifugo"] = re.findall(r"centrifugo/v\d+ v(\S+)", module)[0]
    if "nchan" in names:
        said = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr
        found["nchan"] = f"nginx {said.rpartition('/')[2].strip()}"
    if names & {"ws", "socketio"}:
        found["node"] = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip().lstrip("v")
    return found
