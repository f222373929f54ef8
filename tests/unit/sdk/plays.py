"""Server for SDK tests: a real socket with scripted answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from greendot import Server
from greendot.sdk.http import Http, Patience

KEY = "gd_key_that-nobody-may-see"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int  # the client's port


class Said(NamedTuple):
    """One answer. Status 0 closes the socket without an answer."""

    status: int = 200
    body: Any = {}  # noqa: RUF012  (a NamedTuple's default, never changed)
    headers: dict[str, str] = {}  # noqa: RUF012


Play = Callable[[Asked], Said]


class Stage:
    """Server that records requests and answers them by a function of the test."""

    def __init__(self, play: Play) -> None:
        self.asked: list[Asked] = []
        self._askers: list[Http | Server] = []
        stage = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                body = msgspec.json.decode(content) if content else None
                asked = Asked(self.command, self.path, dict(self.headers), body, self.client_address[1])
                stage.asked.append(asked)
                said = play(asked)
                if not said.status:
                    self.close_connection = True
                    return
                data = said.body if isinstance(said.body, bytes) else msgspec.json.encode(said.body)
                self.send_response(said.status)
                for name, value in (said.headers | {"Content-Length": str(len(data))}).items():
                    self.send_header(name, value)
                with suppress(BrokenPipeError):  # the client may have given up
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _any

            def log_message(self, format: str, *args: Any) -> None:
                """Write nothing: requests are recorded."""

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.listener.server_address[1]}"

    def http(self, patience: Patience | None = None) -> Http:
        """Make an HTTP client of this server. It is closed with the server."""
        self._askers.append(asker := Http(self.url, KEY, patience or Patience()))
        return asker

    def server(self) -> Server:
        self._askers.append(asker := Server(self.url, KEY))
        return asker

    def close(self) -> None:
        for asker in self._askers:
            asker.close()
        self.listener.server_close()


@contextmanager
def playing(play: Play) -> Iterator[Stage]:
    stage = Stage(play)
    thread = threading.Thread(target=stage.listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stage
    finally:
        stage.listener.shutdown()
        thread.join()
        stage.close()


def in_turn(*answers: Said) -> Play:
    """Return the answers one after the other, then repeat the last one."""
    left = [*answers]
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
