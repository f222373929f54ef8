"""Programs of the guides run against a real server, and TypeScript is checked against the types.

test_typed_commands.py has the shell commands.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from clients.javascript import CLIENTS, installed, wrong_types
from e2e.forking import Blocking

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
TYPED = [*GUIDES, ROOT / "clients" / "react" / "README.md"]
SECRETS = {"GREENDOT_AUTH_SECRET": "a" * 32, "GREENDOT_API_KEY": "b" * 32}
# Not run: code of other products and files of other programs.
SHOWN = {"js", "css", "nginx", "diff"}  # tests/foreign runs the diffs
FRAMEWORKS = {"django", "fastapi"}  # test_framework_guides.py runs them
RUN = {"sh", "console", "python", "ts", "tsx", "toml"}


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if not languages or language in languages]


class DevServer:
    """Dev server in its own folder, started as the guides describe."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
        self.environment = clean | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.process = Blocking(folder, self.environment, "serve", "--dev", "--port", str(self.port))
        said = ""
        while "is ready" not in said:
            line = self.process.stdout.readline()
            assert line, said
            said += line

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)

    def run(self, command: list[str], text: str, **environment: str) -> str:
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        result = subprocess.run(
            [*command, text],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=40,
        )
        assert result.returncode == 0, f"{text}\n{result.stdout}{result.stderr}"
        return result.stdout

    def kept(self, name: str) -> str:
        return (self.folder / ".greendot" / name).read_text().strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    started = DevServer(tmp_path_factory.mktemp("guides"))
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_code_block_names_a_known_language(page: Path) -> None:
    assert {language for language, _ in blocks(page)} <= SHOWN | RUN


PROGRAMS = [page for page in GUIDES if blocks(page, "python") and page.stem not in FRAMEWORKS]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)
def test_programs_run(page: Path, server: DevServer) -> None:
    program = "\n".join(text for _, text in blocks(page, "python"))  # programs of a page continue each other
    keys = {"GREENDOT_API_KEY": server.kept("api-key"), "GREENDOT_AUTH_SECRET": server.kept("secret")}
    server.run([sys.executable, "-W", "error", "-c"], program, **keys)


@pytest.mark.parametrize("page", [page for page in GUIDES if blocks(page, "toml")], ids=lambda page: page.stem)
def test_settings_are_taken(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    text = "\n".join(text for _, text in blocks(page, "toml"))
    # The settings check reads the authorities, so the files must exist.
    file.write_text(re.sub(r"/etc/greendot/[\w-]+\.pem", certifi.where(), text))
    process = Blocking(tmp_path, os.environ | SECRETS, "check-config", "--config", str(file))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said


@pytest.mark.timeout(120)
def test_typescript_is_right(tmp_path: Path) -> None:
    installed()
    names = []
    for page in TYPED:
        for number, (language, text) in enumerate(blocks(page, "ts", "tsx")):
            names.append(f"{page.parent.name}-{page.stem}-{number}.{language}")
            (tmp_path / names[-1]).write_text(text)
    assert len(names) > 8
    react = CLIENTS / "node_modules" / "@types" / "react"
    options = json.loads((CLIENTS / "react" / "tsconfig.json").read_text())["compilerOptions"]
    options["paths"] = {
        "@greendot/client": [str(CLIENTS / "js" / "src" / "index.ts")],
        "@greendot/client/stores": [str(CLIENTS / "js" / "src" / "stores" / "index.ts")],
        "@greendot/react": [str(CLIENTS / "react" / "src" / "index.ts")],
        "@greendot/react/components": [str(CLIENTS / "react" / "src" / "components" / "index.ts")],
        "react": [str(react)],
        "react/*": [str(react / "*")],
    }
    # Unused names are allowed in an example; all other errors count.
    options |= {"types": [], "moduleDetection": "force", "noUnusedLocals": False}
    project = {
        "extends": str(CLIENTS / "react" / "tsconfig.json"),
        "compilerOptions": options,
        "include": ["*.ts", "*.tsx"],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(project))
    assert [*wrong_types(tmp_path / "tsconfig.json").values()] == [[]]


# Surroundings of the page: its backend's token, its drawing functions, and a socket. The socket holds `room.history`
# back until another user's message has arrived live. The page then receives that message twice, once before all older
# ones.
AROUND_A_PAGE = """
const [base, key, token] = process.argv.slice(2);
const said = (user, text) =>
  nativeFetch(`${base}/v1/rooms/lobby/messages`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ user, body: { text } }),
  });
const nativeFetch = globalThis.fetch;
globalThis.fetch = async () => new Response(token);
let drawn = [];
globalThis.show = (messages) => void (drawn = messages.map(({ seq, body }) => [seq, body.text]));
globalThis.WebSocket = class extends globalThis.WebSocket {
  constructor() {
    super(base.replace("http", "ws") + "/v1/connect");
  }
  send(text) {
    if (JSON.parse(text).type !== "room.history") return super.send(text);
    const seen = ({ data }) => {
      const { type, data: message } = JSON.parse(data);
      if (type !== "room.message" || message.body.text !== "meanwhile") return;
      this.removeEventListener("message", seen);
      setTimeout(() => super.send(text)); // when the page has been told of it
    };
    this.addEventListener("message", seen);
    said("bob", "meanwhile");
  }
};
await said("bob", "earlier");
await import("./page.ts");
while (drawn.at(-1)?.[1] !== "hello") await new Promise((resolve) => setTimeout(resolve, 5));
console.log(JSON.stringify(drawn));
process.exit(0);
"""


@pytest.mark.timeout(90)
def test_the_page_of_the_socketio_guide_shows_each_message_once_and_in_order(server: DevServer, tmp_path: Path) -> None:
    installed()
    ((_, page),) = blocks(ROOT / "docs" / "guides" / "from-socketio.md", "ts")
    (tmp_path / "page.ts").write_text(page)
    (tmp_path / "around.mjs").write_text(AROUND_A_PAGE)
    bundle = [
        str(CLIENTS / "node_modules" / ".bin" / "esbuild"),
        "around.mjs",
        "--bundle",
        "--format=esm",
        "--platform=node",
        "--outfile=program.mjs",
        f"--alias:@greendot/client={CLIENTS / 'js' / 'src' / 'index.ts'}",
    ]
    made = subprocess.run(bundle, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert made.returncode == 0, made.stderr
    base = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{base}/dev/token?user=alice", timeout=10) as answer:
        token = json.load(answer)["token"]
    command = ["node", "--experimental-websocket", "program.mjs", base, server.kept("api-key"), token]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=40)
    assert ran.returncode == 0, ran.stderr
    drawn = json.loads(ran.stdout)
    numbers = [seq for seq, _ in drawn]
    assert numbers == sorted(set(numbers))
    assert [text for _, text in drawn][-3:] == ["earlier", "meanwhile", "hello"]
