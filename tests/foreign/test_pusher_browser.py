"""Unmodified pusher-js in Chromium, on a page of the server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e.browser import ServerProcess, chromium, serve, site
from greendot.compat.pusher.signature_model import channel_text, sign, user_text

from .clients import APP, HERE, installed

__all__ = ["chromium", "serve", "site"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
SCRIPT = """
async ([key, port, user]) => {
  const asked = (kind) => ({
    customHandler: async (params, done) => done(null, JSON.parse(await authorize(kind, params, user))),
  });
  const pusher = (window.pusher = new Pusher(key, {
    cluster: "own", wsHost: "127.0.0.1", wsPort: port, forceTLS: false, enabledTransports: ["ws", "wss"],
    channelAuthorization: asked("channel"), userAuthentication: asked("user"),
  }));
  pusher.signin();
  window.seen = [];
  const channel = (window.channel = pusher.subscribe("presence-lobby"));
  channel.bind("pusher:member_added", ({ id }) => seen.push(["added", id]));
  channel.bind("client-typing", (data) => seen.push(["typing", data]));
  return new Promise((resolve) =>
    channel.bind("pusher:subscription_succeeded", ({ members }) => resolve(Object.keys(members).sort())));
}
"""


def authorize(kind: str, params: dict[str, Any], user: str) -> str:
    """Sign as the auth endpoint of an app does."""
    if kind == "user":
        data = json.dumps({"id": user})
        return json.dumps({"auth": _auth(user_text(params["socketId"], data)), "user_data": data})
    data = json.dumps({"user_id": user, "user_info": {"name": user}})
    text = channel_text(params["socketId"], params["channelName"], data)
    return json.dumps({"auth": _auth(text), "channel_data": data})


def _auth(text: str) -> str:
    return f"{APP['key']}:{sign(APP['secret'], text)}"


def page(browser: Browser, url: str) -> Page:
    opened = browser.new_context(bypass_csp=True).new_page()
    opened.expose_function("authorize", authorize)
    opened.goto(f"{url}docs")
    opened.add_script_tag(path=str(HERE / "node_modules" / "pusher-js" / "dist" / "web" / "pusher.js"))
    return opened


def test_two_pages_see_each_other_and_type(chromium: Browser, serve: Any) -> None:
    installed()
    keys = {f"GREENDOT_PUSHER_{name.upper()}": value for name, value in APP.items()}
    with serve(**keys) as process:
        assert isinstance(process, ServerProcess)
        ann, bob = page(chromium, process.url), page(chromium, process.url)
        assert ann.evaluate(SCRIPT, [APP["key"], process.port, "ann"]) == ["ann"]
        assert bob.evaluate(SCRIPT, [APP["key"], process.port, "bob"]) == ["ann", "bob"]
        bob.evaluate("channel.trigger('client-typing', { name: 'Bob' })")
        ann.wait_for_function("seen.length === 2")
        assert ann.evaluate("seen") == [["added", "bob"], ["typing", {"name": "Bob"}]]
        assert ann.evaluate("pusher.user.user_data.id") == "ann"
