"""Commands of the pages: each is run in the order of its page and must succeed.

ELSEWHERE has the commands that cannot run here, with the reason. The list should only become shorter.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from urllib.request import Request, urlopen

import click
import pytest

from deployed.programs import program as installed
from docs.typed import PAGES, ROOT, Block, Place, blocks, program
from greendot.cli import cli
from postgres_server import execute, programs
from redis_servers import KINDS, RedisProcess

BLOCKS = [block for page in PAGES for block in blocks(page)]
# Program → reason why it is not run here.
ELSEWHERE = {
    "docker": "needs Docker",
    "helm": "needs a Kubernetes cluster: tests/deployed has it rendered",
    "kubectl": "needs a Kubernetes cluster",
    "sudo": "changes the machine it is typed on",
}
HERE = [block for block in BLOCKS if any(program(command) not in ELSEWHERE for command in block.commands)]
WHAT_TO_DO = """
Every command of the pages is typed by tests/docs/test_typed_commands.py. Make this one work in its Place
(tests/docs/typed.py: addresses that stand for others; `prepare`: what is there beforehand), or, if its program can
never be here (Docker, another machine), name the program in ELSEWHERE with the reason."""


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("typed")
    with asyncio.Runner() as runner, RedisProcess(KINDS[0], tmp_path_factory.mktemp("redis")) as redis:
        name = f"greendot_typed_{os.getpid()}"
        runner.run(execute(postgres, f"CREATE DATABASE {name}"))
        server, _, _ = postgres.rpartition("/")
        made = Place(folder, f"redis://127.0.0.1:{redis.port}", f"{server}/{name}", programs())
        try:
            made.start()
            yield made
        finally:
            made.leave()
            runner.run(execute(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


def prepare(place: Place) -> None:
    """Create the data that the pages assume."""
    call(place, "PUT", "/v1/rooms/club", {"open": False})
    call(place, "PUT", "/v1/rooms/club/members/alice", {"role": "admin"})
    call(place, "PUT", "/v1/users/alice/devices/phone", {"provider": "webhook", "token": "a-token-of-a-phone"})
    made = call(place, "POST", "/v1/notifications", {"user": "alice", "kind": "order.shipped", "body": {"order": 17}})
    place.stands_for("01J9…-17", made["id"])
    # Without a terminal there is no confirmation prompt.
    place.stands_for("disconnect --user ann", "disconnect --user ann --yes")


def call(place: Place, method: str, path: str, body: object) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {place.kept('api-key')}"}
    asked = Request(f"http://127.0.0.1:{place.port}{path}", json.dumps(body).encode(), headers, method=method)
    with urlopen(asked, timeout=10) as answer:
        found: dict[str, str] = json.loads(answer.read() or b"{}")
    return found


@pytest.mark.parametrize("block", HERE, ids=lambda block: f"{block.page}:{block.line}")
def test_what_is_to_be_typed_works(block: Block, place: Place) -> None:
    here = [command for command in block.commands if program(command) not in ELSEWHERE]
    for name in ("curl", "openssl"):
        if any(re.search(rf"\b{name}\b", command) for command in here):
            installed(name)  # skips the test if it is missing
    prepare(place)
    if re.search(r"\bann\b|vKBX", " ".join(here)):
        with place.company() as ann:
            place.stands_for("vKBX-hkSdP0Bnp", ann["session"])
            place.stands_for("vKBX", ann["node"])
            result = place.type(here)
    else:
        result = place.type(here)
    assert result.returncode == 0, f"{block.page}:{block.line}\n{result.args[-1]}\n\n{result.stdout}\n{WHAT_TO_DO}"


def test_what_cannot_be_typed_here_can_be_read_by_a_shell() -> None:
    for block in BLOCKS:
        for command in block.commands:
            if program(command) in ELSEWHERE:
                read = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True, timeout=20)
                assert (read.returncode, read.stderr) == (0, ""), f"{block.page}:{block.line}\n{command}"


def test_nothing_is_excused_that_is_not_there() -> None:
    used = {program(command) for block in BLOCKS for command in block.commands}
    assert ELSEWHERE.keys() <= used, "these entries of ELSEWHERE are not on any page; remove them"


def test_there_is_something_to_type() -> None:
    """Guard against a parser that finds no commands, which would never fail."""
    pages = {block.page for block in BLOCKS}
    assert {"README.md", "CONTRIBUTING.md", "docs/cli.md", "docs/guides/going-to-production.md"} <= pages
    assert sum(len(block.commands) for block in BLOCKS) > 60


# --- programs of the README ---


def of_the_readme(language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_client_program_of_the_readme_receives_the_hello_message(place: Place) -> None:
    client, _ = of_the_readme()
    process = place.start_program(client)
    try:
        assert process.stdout is not None
        said = ""
        while "room.message {'text': 'hello'}" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert said.startswith("alice "), said
    finally:
        process.kill()
        process.communicate()


def test_the_backends_program_of_the_readme_runs(place: Place) -> None:
    _, backend = of_the_readme()
    process = place.start_program(backend + "print(token)")
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert said.count(".") == 2, said


# --- commands within sentences ---

INLINE = re.compile(r"`((?:greendot|make) [^`\n]+)`")


def inline(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    return [found.replace("\\|", "|") for found in INLINE.findall(text)]


SPOKEN = {str(page.relative_to(ROOT)): inline(str(page.relative_to(ROOT))) for page in PAGES}


@pytest.mark.parametrize("page", [page for page, found in SPOKEN.items() if found])
def test_what_is_spoken_of_is_there(page: str) -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    for text in SPOKEN[page]:
        name, *words = shlex.split(re.sub(r"[\[\]]", " ", text.replace("'", "")))
        if name == "make":
            assert words[0] in targets, f"{page}: `{text}`: make has no such target"
            continue
        for chosen in words[0].split("|") if words else []:
            known(page, text, [chosen, *words[1:]])


def known(page: str, text: str, words: list[str]) -> None:
    """Check that the command exists and has these options."""
    found: click.Command = cli
    while words and isinstance(found, click.Group) and not words[0].startswith("-"):
        name = words.pop(0)
        if name.isupper():
            return  # placeholder for any command
        for each in reversed(name.split("|")):
            named = found.get_command(click.Context(found), each)
            assert named is not None, f"{page}: `{text}`: greendot has no such command"
        found = named
    options = {option for parameter in found.params for option in parameter.opts + parameter.secondary_opts}
    for word in words:
        if word.startswith("-"):
            assert word.split("=")[0] in options | {"--help", "-h", "--version"}, (
                f"{page}: `{text}`: unknown option {word}"
            )
