"""Run of a program until it is ready, then Ctrl-C; it must end without an error.

A server gets its own port, and a folder and secrets if none are given: another server is already running.
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

READY = re.compile(r"is ready|Stop with Ctrl-C|Ctrl-C ends it|^greendot [\d.]+ +\d")
FORKED = re.compile(r"pid (\d+)$")
ENDED = {"make": {2, 130, -2}, "top": {130}, "tail": {130}}  # exit codes of interrupted programs
PATIENCE_S = 30.0


def main(command: list[str]) -> int:
    # Otherwise: python -I -S forked.py --pid SOCKET WHAT
    what = "make" if os.path.basename(command[0]) == "make" else command[6]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if what not in ("top", "tail"):
            aside(what, command, environment, folder)
        # A new process group: Ctrl-C reaches the same processes as in a terminal.
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
            return watched(process, ENDED.get(what, set()), is_forked=what != "make")
        finally:
            guard.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def aside(what: str, command: list[str], environment: dict[str, str], folder: str) -> None:
    """Give the command its own port, folder and secrets, apart from the running server."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    if "--port" in command:
        command[command.index("--port") + 1] = port
    environment |= {"GREENDOT_SERVER_PORT": port, "GREENDOT_SERVER_DATA_DIR": folder}
    environment.pop("GREENDOT_OUTBOX_URL", None)
    if what == "make":
        command.append(f"ARGS=--port {port}")
    else:
        environment.setdefault("GREENDOT_AUTH_SECRET", secrets.token_hex(32))


def watched(process: subprocess.Popen[str], interrupted: set[int], *, is_forked: bool) -> int:
    assert process.stdout is not None
    is_ready, pid = False, 0  # id of the forked process, which is not in the group
    is_asked = False
    for line in process.stdout:
        if is_forked and (found := FORKED.match(line)):
            pid = int(found[1])
        else:
            print(line, end="", flush=True)
        is_ready = is_ready or bool(READY.search(line))
        if is_ready and not is_asked and (pid or not is_forked):
            is_asked = True
            os.kill(pid, signal.SIGINT) if is_forked else os.killpg(process.pid, signal.SIGINT)
    code = process.wait()
    if not is_ready:
        return code or 1
    return 0 if code in interrupted else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
