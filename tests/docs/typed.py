"""Commands on the pages, and a place to run them: a dev server with Redis and PostgreSQL, and a shell in its folder.

Example addresses of the pages are replaced by those of the real servers. Programs that do not end by themselves are
stopped once they are ready. `make` is a dry run, except for `make serve`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from e2e.forking import Blocking
from e2e.forking import server as forks

ROOT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "examples/*.md", "clients/*/README.md", "bench/*.md", "deploy/**/*.md")
PAGES = [page for pattern in PATTERNS for page in sorted(ROOT.glob(pattern))]
SHELLS = {"sh", "bash", "shell", "console"}
_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_ASSIGNED = re.compile(r"^(?:\w+=\S*\s+)+")


class Block(NamedTuple):
    """Fenced block with commands."""

    page: str
    line: int
    commands: tuple[str, ...]  # complete commands, with their continuation lines


def blocks(page: Path) -> list[Block]:
    """Return the blocks with commands: shell scripts, or lines after `$` with their output."""
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        language, content = match[2], re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        at_prompt = language in ("console", "", "text") and re.search(r"^\$ ", content, re.MULTILINE)
        if at_prompt or language in SHELLS:
            commands = [*_typed(content.splitlines(), at_prompt=bool(at_prompt))]
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(str(page.relative_to(ROOT)), line, tuple(commands)))
    return found


def _typed(lines: list[str], *, at_prompt: bool) -> list[str]:
    commands: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on:
            commands[-1] += f"\n{line}"
        elif at_prompt and line.startswith("$ "):
            commands.append(line.removeprefix("$ "))
        elif not at_prompt and line.strip() and not line.lstrip().startswith("#"):
            commands.append(line)
        else:
            continue
        goes_on = commands[-1].endswith("\\")
    return commands


def program(command: str) -> str:
    """Return the program of a command, after its variable assignments."""
    return _ASSIGNED.sub("", command.lstrip()).split(maxsplit=1)[0]


# --- place to run commands ---

SHIM = """\
#!/bin/sh
# What goes on until it is stopped is stopped once it is ready. Findings of doctor are no failure.
case "$1" in
  serve | worker | top | tail) exec "{python}" -I "{until}" "{python}" -I -S "{forked}" --pid "{socket}" "$@" ;;
  doctor)
    found=$("{python}" -I -S "{forked}" "{socket}" "$@" || true)
    echo "$found"
    echo "$found" | grep -q 'ok[.]$' ;; # the line that sums up
  *) exec "{python}" -I -S "{forked}" "{socket}" "$@" ;;
esac
"""
MAKE = """\
#!/bin/sh
# The recipe itself, in this environment, which is taken for up to date; of anything else only what would be done.
case "$1" in
  serve) exec "{python}" -I "{until}" "{make}" -C "{root}" "$@" "VENV={venv}" -o "{venv}/.serves" ;;
  *) exec "{make}" -n -C "{root}" "$@" > /dev/null ;;
esac
"""
SETTINGS = """\
[engine]
url = "{redis}"
[store]
url = "{postgres}"
[auth]
audience = "greendot"
[door]
origins = ["https://app.example.com"]
"""


COMPANY = """\
import asyncio, json, urllib.request
from greendot.testing import WireClient

async def come(user, device):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/dev/token?user={{user}}") as answer:
        token = json.load(answer)["token"]
    client = await WireClient.connect({port})
    await client.hello(token, device=device)
    await client.request(type="room.join", room="lobby")
    await client.request(type="typing.start", room="lobby")
    await client.request(type="watch", users=["ann"])
    return client

async def main():
    people = [("ann", "laptop"), ("ann", "phone"), ("ann", "tv"), ("bob", "phone")]
    here = [await come(*who) for who in people]
    print(json.dumps({{name: here[0].welcome[name] for name in ("session", "node")}}), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Place:
    """Folder with a dev server, and real values for the example values of the pages."""

    def __init__(self, folder: Path, redis: str, postgres: str, programs: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
        self._environment = inherited | {
            "GREENDOT_ENGINE_URL": redis,
            "GREENDOT_SERVER_PORT": str(self.port),
            "GREENDOT_OUTBOX_URL": postgres,
            "GREENDOT_PUSH_WEBHOOK_URL": "https://app.example.com/push",
            "GREENDOT_PUSH_WEBHOOK_SECRET": "of an app that is never called, for tests",
            "GREENDOT_PUSH_DRY_RUN": "true",
            "HOME": str(folder / "home"),
            "PATH": ":".join(map(str, (folder / "bin", Path(sys.executable).parent, programs, os.environ["PATH"]))),
        }
        self._made_up = {
            "127.0.0.1:8000": f"127.0.0.1:{self.port}",
            "localhost:8000": f"127.0.0.1:{self.port}",
            "10.0.0.5:(8000|9102)": f"127.0.0.1:{self.port}",
            r"rediss?(\+\w+)?://[^\s'\"]+": redis,
            r"postgresql://[^\s'\"]+": shlex.quote(postgres),
            r"/etc/greendot\.toml|/etc/greendot/greendot\.toml": str(folder / "greendot.toml"),
            "/var/lib/greendot": str(folder / "var"),
            "/backups": str(folder / "backups"),
            "=…": "=$(openssl rand -hex 32)",
        }
        self._settings = SETTINGS.format(redis=redis, postgres=postgres)
        self._write()
        self._server: Blocking | None = None

    def _write(self) -> None:
        for name in ("bin", "var", "backups", "home/.config/fish/completions"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / ".venv").symlink_to(sys.prefix)  # the README uses it
        (self.folder / "deploy/compose").mkdir(parents=True)
        (self.folder / "deploy/compose/make-env").symlink_to(ROOT / "deploy/compose/make-env")
        words = {
            "forked": Path(__file__).parents[1] / "forked.py",
            "socket": forks(),
            "python": sys.executable,
            "until": Path(__file__).with_name("until_ready.py"),
            "root": ROOT,
            "venv": sys.prefix,
            "make": shutil.which("make"),
        }
        for name, text in (("greendot", SHIM), ("make", MAKE)):
            shim = self.folder / "bin" / name
            shim.write_text(text.format(**words))
            shim.chmod(0o755)

    def start(self) -> None:
        """Start the dev server as the README does."""
        environment = {key: value for key, value in self._environment.items() if key != "GREENDOT_OUTBOX_URL"}
        self._server = Blocking(self.folder, environment, "serve", "--dev")
        said = ""
        while "is ready" not in said:
            line = self._server.stdout.readline()
            assert line, said
            said += line

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.communicate(timeout=20)
            self._server = None

    def leave(self) -> None:
        """End all processes started here."""
        self.stop()

    def stands_for(self, made_up: str, real: str) -> None:
        """Replace another example value of the pages by a real one."""
        self._made_up[re.escape(made_up)] = real

    def real(self, text: str) -> str:
        for made_up, here in self._made_up.items():
            text = re.sub(made_up, lambda _, here=here: here, text)
        return text

    def type(self, commands: list[str]) -> subprocess.CompletedProcess[str]:
        """Run the commands in one shell, until one fails."""
        settings = self.folder / "greendot.toml"
        if any(command.startswith("greendot genconfig") for command in commands):
            settings.unlink(missing_ok=True)  # the command creates it
        else:
            settings.write_text(self._settings)
        # No server may run during a restore.
        is_apart = any(command.startswith("greendot restore") for command in commands)
        if is_apart:
            self.stop()
        try:
            return self.run(["sh", "-euc", self.real("\n".join(commands))])
        finally:
            if is_apart:
                self.start()

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=50,
        )

    @contextmanager
    def company(self) -> Iterator[dict[str, str]]:
        """Connect some users; yield one of their sessions and its node."""
        process = self.start_program(COMPANY.format(port=self.port))
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("{"), said + process.stdout.read()
            yield json.loads(said)
        finally:
            process.kill()
            process.communicate()

    def start_program(self, program: str) -> subprocess.Popen[str]:
        """Start a Python program of a page, which may keep running."""
        command = [sys.executable, "-u", "-c", self.real(program)]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kept(self, name: str) -> str:
        """Return a secret that the dev server has created."""
        return (self.folder / ".greendot" / name).read_text().strip()
