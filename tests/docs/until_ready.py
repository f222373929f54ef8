"""Runs a server, a worker or `make serve` until it says that it is ready, then presses Ctrl-C; it has to end well.

It gets a port of its own, and a folder and secrets where none are given: the pages' commands are typed beside a server.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading

READY = re.compile(r"is ready|Stop with Ctrl-C")
PATIENCE_S = 30.0


def main(command: list[str]) -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    is_make = os.path.basename(command[0]) == "make"
    if "--port" in command:
        command[command.index("--port") + 1] = port
    if is_make:
        command.append(f"ARGS=--port {port}")
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GREENDOT_SERVER_PORT": port, "GREENDOT_SERVER_DATA_DIR": folder}
        environment.pop("GREENDOT_OUTBOX_URL", None)
        if not is_make:
            environment.setdefault("GREENDOT_AUTH_SECRET", secrets.token_hex(32))
        # A group of its own: Ctrl-C reaches all that a terminal's would.
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        guard = threading.Timer(PATIENCE_S, lambda: os.killpg(process.pid, signal.SIGKILL))
        guard.start()
        try:
            return watched(process, is_make)
        finally:
            guard.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def watched(process: subprocess.Popen[str], is_make: bool) -> int:
    assert process.stdout is not None
    is_ready = False
    for line in process.stdout:
        print(line, end="", flush=True)
        if not is_ready and READY.search(line):
            is_ready = True
            os.killpg(process.pid, signal.SIGINT)
    code = process.wait()
    if not is_ready:
        return code or 1
    return 0 if is_make else code  # make says that it was interrupted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
