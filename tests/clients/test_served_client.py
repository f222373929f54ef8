"""Client as a server in production serves it, in a browser, with the pages of docs/javascript.md of another origin."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from greendot.sdk import Server

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

DOCS = (Path(__file__).parents[2] / "docs" / "javascript.md").read_text()
SIMPLE, CHECKED = re.findall(r"^```html\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
SECRET, KEY = "s" * 32, "k" * 32
# The page of the docs ends with the import; a page of an app goes on.
USED = """
<script type="module">
  import { Greendot } from "greendot";
  const getToken = async () => (await fetch("/greendot-token", { method: "POST" })).text();
  window.client = new Greendot({ url: "SERVER", getToken });
  client.connect();
</script>
"""


class Site(BaseHTTPRequestHandler):
    """Site of an app: its pages, and the route that gives a token."""

    def __init__(self, pages: dict[str, str], rt: str, *rest: object) -> None:
        self._pages, self._rt = pages, rt
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        page = self._pages.get(self.path)
        self._answer("text/html", page or "", 404 if page is None else 200)

    def do_POST(self) -> None:
        self._answer("text/plain", Server(self._rt, KEY, secret=SECRET).token("alice", ttl=600))

    def _answer(self, kind: str, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


class Setting:
    """Server in production, and an app's site of another origin."""

    def __init__(self, rt: str, site: str, pages: dict[str, str]) -> None:
        self.rt, self.site, self._pages = rt, site, pages

    def show(self, page: Page, text: str) -> None:
        self._pages["/"] = text.replace("https://rt.example.com", self.rt).replace("SERVER", self.rt)
        page.goto(self.site)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    pages: dict[str, str] = {}
    # The server needs the origin of the site, and the site the address of the server.
    site = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    origin = f"http://localhost:{site.server_port}"
    environment = {
        "PATH": "/usr/bin:/bin",
        "GREENDOT_AUTH_SECRET": SECRET,
        "GREENDOT_API_KEY": KEY,
        "GREENDOT_DOOR_ORIGINS": origin,
    }
    command = [Path(sys.executable).parent / "greendot", "serve", "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"ws://(127\.0\.0\.1:\d+)/", server.stdout.readline())
        assert found
        rt = f"http://{found[1]}"
        site.RequestHandlerClass = partial(Site, pages, rt)  # type: ignore[assignment]
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield Setting(rt, origin, pages)
        site.shutdown()
    finally:
        site.server_close()
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def test_one_script_is_the_installation_on_a_page_of_another_origin(setting: Setting, page: Page) -> None:
    with page.expect_console_message(lambda message: message.text == "online"):
        setting.show(page, SIMPLE)


def test_with_its_hash_the_client_works_and_another_file_is_refused(setting: Setting, page: Page) -> None:
    setting.show(page, CHECKED + USED)
    page.wait_for_function("window.client?.state === 'online'")
    wrong = re.sub(r"sha384-.", lambda found: found[0][:-1] + ("B" if found[0][-1] == "A" else "A"), CHECKED)
    with page.expect_console_message(lambda message: "integrity" in message.text):
        setting.show(page, wrong + USED)
    assert page.evaluate("window.client") is None
