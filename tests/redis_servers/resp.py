"""Minimal Redis client for checks without the engine: blocking, one socket, hiredis."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Any, Self

import hiredis

Argument = str | bytes | int | float
Login = tuple[str, str]  # user and password
ANSWER_S = 5.0  # TimeoutError after this time, for a stopped or cut server


class Connection:
    """Connection to 127.0.0.1. Replies are bytes, integers and lists; an error raises hiredis.ReplyError."""

    def __init__(self, port: int, *, login: Login | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._reader = hiredis.Reader()
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
            if login is not None:
                self.call("AUTH", *login)
        except BaseException:
            self._socket.close()
            raise

    def call(self, *arguments: Argument) -> Any:
        self.send(*arguments)
        return self.read()

    def send(self, *arguments: Argument) -> None:
        self._socket.sendall(hiredis.pack_command(arguments))

    def read(self, within_s: float = ANSWER_S) -> Any:
        """Return the next reply or push. Raise TimeoutError if none arrives, ConnectionError if the connection has
        ended.
        """
        self._socket.settimeout(within_s)
        while (reply := self._reader.gets()) is False:
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(received)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
