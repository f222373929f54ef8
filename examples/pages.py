"""Backend of the examples `cursors` and `react`: serves their files, signs a token for any name, sends notifications.

Start it: make example NAME=cursors (or react)
"""

import json
import mimetypes
import os
import re
import sys
import unicodedata
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import greendot.web
from greendot import Server

FOLDER = Path(sys.argv[1]).resolve()
GREENDOT = os.environ["GREENDOT_URL"]
SOCKET = GREENDOT.replace("http", "ws", 1)
# Client as one module, for pages without a build.
CLIENT = Path(greendot.web.__file__).with_name("greendot.js")
API_KEY = os.environ.get("GREENDOT_API_KEY", "")  # without it: no read receipts and no notifications
server = Server(GREENDOT, API_KEY or "not used", secret=os.environ["GREENDOT_AUTH_SECRET"])


def id_for(name: str) -> str:
    """Return an id derived from the name: "Zoë Miller" becomes zoe-miller."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64] or "u" + name.encode().hex()[:60]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/config.json":
            return self.answer(json.dumps({"url": SOCKET}).encode(), "application/json")
        if path == "/greendot.js":
            return self.answer(CLIENT.read_bytes(), "text/javascript")
        file = (FOLDER / ("index.html" if path == "/" else path.lstrip("/"))).resolve()
        if not file.is_relative_to(FOLDER) or not file.is_file():
            return self.send_error(404)
        return self.answer(file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream")

    def do_POST(self) -> None:
        """Return a token for the given name, or notify a user. In your app, do so for the signed-in user only."""
        asked = urlsplit(self.path)
        given = {name: values[0].strip()[:64] for name, values in parse_qs(asked.query).items()}
        name = given.get("name")
        if name and asked.path == "/token":
            info = {field: given[field] for field in ("avatar", "colour") if field in given}
            token = server.token(id_for(name), name=name, info=info, rooms=["lobby", "board"], ttl=600)
            return self.answer(token.encode(), "text/plain")
        if name and given.get("to") and API_KEY and asked.path == "/nudge":
            server.notify(id_for(given["to"]), "nudge", {"title": f"{name} nudged you"})
            return self.answer(b"sent", "text/plain")
        return self.send_error(404)

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header(
            "Content-Security-Policy", f"default-src 'self'; img-src 'self' data:; connect-src 'self' {SOCKET}"
        )
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing, so that the instructions stay visible in the terminal."""


if __name__ == "__main__":
    if API_KEY:
        server.put_room("lobby", open=True, receipts=True)
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
