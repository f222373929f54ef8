"""Host names whose name server never responds: a lookup blocks its thread until the test ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LONGEST_S = 60.0  # threads of a test that does not release them end after this time


class SilentNames:
    """Blocking lookups of names that end in `.test`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.under_way = 0  # blocked threads
        self.most_under_way = 0
        self._lock = threading.Lock()
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def block(self, host: str) -> None:
        with self._lock:
            self.asked.append(host)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        self._released.wait(LONGEST_S)
        with self._lock:
            self.under_way -= 1


@contextmanager
def silent_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentNames]:
    """Block lookups of `.test` names in this process until the test ends."""
    found, real = SilentNames(), socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".test") and not kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
            found.block(host)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, port, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        try:
            yield found
        finally:
            found.release()
