"""Web Push in a real browser: permission, service worker, subscription, registration and the shown notification.

A browser in tests cannot reach the push service of its maker. So the page's subscription is one of a local push
service, which decrypts what the server sends. The test hands the content to the browser as its push service would.
Chromium's headless shell permits and shows no notifications, so the page and the service worker get a list of them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Worker

from fake_providers import PlayedWebPush, VapidKey, playing, vapid_key
from redis_servers.tls import Certificates, certificates

if TYPE_CHECKING:
    from e2e.browser import ServerProcess

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

# The page's subscriptions, in order. `calls` has the keys that were subscribed with.
SUBSCRIPTIONS = """
  window.calls = [];
  window.permission = "granted";
  Object.defineProperty(Notification, "permission", { get: () => permission });
  const given = %s;
  let current = null;
  PushManager.prototype.getSubscription = async () => current;
  PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
    if (!userVisibleOnly || Notification.permission !== "granted") throw new Error("not permitted");
    calls.push(btoa(String.fromCharCode(...applicationServerKey)));
    const token = given[calls.length - 1];
    return (current = {
      options: { userVisibleOnly, applicationServerKey: applicationServerKey.buffer },
      toJSON: () => token,
      unsubscribe: async () => ((current = null), true),
    });
  };
  window.lose = () => (current = null);
"""
BEGIN = """
async () => {
  const { Greendot, localStore } = await import("/greendot.js");
  const getToken = async () => (await (await fetch("/dev/token?user=alice")).json()).token;
  window.client = new Greendot({ url: "/", getToken, storage: localStore() });
  window.push = await import("/greendot-push.js");
  window.heard = [];
  navigator.serviceWorker.addEventListener("message", ({ data }) => heard.push(data));
  client.connect();
}
"""
# Notifications by tag, as a browser keeps them.
NOTIFICATIONS = """
() => {
  const shown = new Map();
  ServiceWorkerRegistration.prototype.showNotification = async (title, options) => {
    if ((options.renotify && !options.tag) || (options.renotify && options.silent)) throw new TypeError("refused");
    const tag = options.tag || `untagged-${shown.size}`;
    shown.set(tag, { title, ...options, close: () => shown.delete(tag) });
  };
  ServiceWorkerRegistration.prototype.getNotifications = async ({ tag } = {}) =>
    [...shown.values()].filter((one) => !tag || one.tag === tag);
}
"""
SHOWN = """
async () => (await registration.getNotifications())
  .map(({ title, body, tag, silent, requireInteraction, data }) =>
    ({ title, body, tag, silent: !!silent, requireInteraction, seq: data.push.seq ?? null }))
"""
# Dispatch a click on the first notification. The browser opens and focuses pages only for a click of a person.
CLICK = """
async () => {
  const [notification] = await registration.getNotifications();
  const opened = [], focused = [], waits = [];
  clients.openWindow = async (url) => void opened.push(url);
  WindowClient.prototype.focus = async function () { focused.push(this.url); };
  const event = Object.assign(new Event("notificationclick"), { notification, waitUntil: (work) => waits.push(work) });
  dispatchEvent(event);
  await Promise.all(waits);
  return { opened, focused };
}
"""
RENEW = """
async () => {
  const waits = [];
  const waitUntil = (work) => waits.push(work);
  PushManager.prototype.getSubscription = async () => null;
  dispatchEvent(Object.assign(new Event("pushsubscriptionchange"), { waitUntil }));
  await Promise.all(waits);
}
"""

RENEW_ALONE = """
async () => {
  const waits = [], found = {};
  globalThis.fetch = async (url, { method, body }) => void Object.assign(found, { url: String(url), method, body });
  PushManager.prototype.getSubscription = async () => null;
  PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
    found.key = [...applicationServerKey];
    return { endpoint: "https://new" };
  };
  const options = { applicationServerKey: new Uint8Array([1, 2, 3]) };
  const oldSubscription = { endpoint: "https://push.example/1", options };
  const waitUntil = (work) => waits.push(work);
  dispatchEvent(Object.assign(new Event("pushsubscriptionchange"), { oldSubscription, waitUntil }));
  await Promise.all(waits);
  return found;
}
"""


@contextmanager
def in_a_thread(service: PlayedWebPush, made: Certificates) -> Iterator[None]:
    """Run the push service on a loop of its own: Playwright blocks the loop of this thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = playing(service, made)
    asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(10)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Subscribed:
    """Page of alice on a server with Web Push, and the push service of her browser."""

    def __init__(self, site: ServerProcess, service: PlayedWebPush, page: Page, key: VapidKey) -> None:
        self.site = site
        self.service = service
        self.page = page
        self.key = key
        self._cdp: CDPSession | None = None
        self._registrations: list[str] = []

    def subscribe(self, **options: Any) -> None:
        self.page.evaluate("(options) => push.subscribePush(client, options).then(() => {})", options)
        self.worker.evaluate(NOTIFICATIONS)

    def devices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.call("GET", "v1/users/alice/devices")["devices"]
        return found

    def notify(self, **fields: Any) -> dict[str, Any]:
        """Create a critical notification; return the content that the push service got."""
        before = len(self.service.taken)
        body = {"title": "Disk full", "text": "db1 has 1 % left"} | fields.pop("body", {})
        given = {"user": "alice", "kind": "disk", "body": body, "importance": "critical"}
        self.site.call("POST", "v1/notifications", given | fields)
        for _ in range(1_000):
            if len(self.service.taken) > before:
                break
            self.page.wait_for_timeout(10)
        content: dict[str, Any] = self.service.taken[before].content
        return content

    def deliver(self, content: object) -> None:
        """Deliver a push to the service worker, as the browser's push service does."""
        if self._cdp is None:
            self._cdp = self.page.context.new_cdp_session(self.page)
            self._cdp.on("ServiceWorker.workerRegistrationUpdated", self._updated)
            self._cdp.send("ServiceWorker.enable")
        for _ in range(500):
            if self._registrations:
                break
            self.page.wait_for_timeout(10)
        place = {"origin": self.site.url.rstrip("/"), "registrationId": self._registrations[0]}
        self._cdp.send("ServiceWorker.deliverPushMessage", place | {"data": json.dumps(content)})

    def _updated(self, told: dict[str, Any]) -> None:
        self._registrations += [one["registrationId"] for one in told["registrations"] if not one["isDeleted"]]

    def shown(self, *texts: str) -> list[dict[str, Any]]:
        """Return the notifications when they have these texts."""
        for _ in range(500):
            found: list[dict[str, Any]] = self.worker.evaluate(SHOWN)
            if [one["body"] for one in found] == [*texts]:
                return found
            self.page.wait_for_timeout(10)
        raise AssertionError(f"{texts} are expected, and {found} are shown")

    @property
    def worker(self) -> Worker:
        for _ in range(500):
            if workers := self.page.context.service_workers:
                return workers[0]
            self.page.wait_for_timeout(10)
        raise AssertionError("there is no service worker")


Serve = Callable[..., AbstractContextManager["ServerProcess"]]


@pytest.fixture
def alice(chromium: Browser, serve: Serve, tmp_path: Path) -> Iterator[Subscribed]:
    key, made, service = vapid_key(tmp_path), certificates(tmp_path), PlayedWebPush()
    settings = {
        "GREENDOT_PUSH_WEBPUSH_KEY_FILE": str(key.file),
        "GREENDOT_PUSH_WEBPUSH_SUBJECT": "mailto:ops@example.com",
        "GREENDOT_PUSH_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_PUSH_CA_FILE": str(made.authority),
    }
    with in_a_thread(service, made), serve(**settings) as site:
        context = chromium.new_context(bypass_csp=True)
        context.grant_permissions(["notifications"], origin=site.url)
        tokens = [json.loads(service.subscribe(key.public)) for _ in range(3)]
        context.add_init_script(SUBSCRIPTIONS % json.dumps(tokens))
        page = context.new_page()
        page.goto(site.url + "favicon.svg")
        page.evaluate(BEGIN)
        yield Subscribed(site, service, page, key)
        context.close()


def test_a_page_subscribes_and_gets_the_push_of_a_notification(alice: Subscribed) -> None:
    alice.subscribe()
    (device,) = alice.devices()
    assert device["provider"] == "webpush"
    (used,) = alice.page.evaluate("calls")
    assert used.replace("+", "-").replace("/", "_").rstrip("=") == alice.key.public
    content = alice.notify(collapse="disk-db1")
    alice.deliver(content)
    (shown,) = alice.shown("db1 has 1 % left")
    assert (shown["title"], shown["tag"], shown["seq"]) == ("Disk full", "disk-db1", 1)
    assert (shown["requireInteraction"], shown["silent"]) == (True, False)


def test_a_push_replaces_an_earlier_one_and_a_late_one_does_not(alice: Subscribed) -> None:
    alice.subscribe()
    first, second = (alice.notify(collapse="c", body={"text": text}) for text in ("first", "second"))
    other = alice.notify(body={"text": "other"})
    for content, text in ((first, "first"), (second, "second")):
        alice.deliver(content)
        assert [one["silent"] for one in alice.shown(text)] == [False]
    for content in (first, second, other):  # sent again, or late
        alice.deliver(content)
    late, _ = alice.shown("second", "other")
    assert (late["seq"], late["silent"]) == (2, True)
    alice.deliver(other)
    alice.deliver(second | {"collapse": "d"})
    alice.shown("second", "other", "second")


def test_a_click_focuses_a_page_of_the_site_or_opens_the_url_of_the_push(alice: Subscribed) -> None:
    alice.subscribe()
    alice.deliver(alice.notify(body={"text": "one"}))
    alice.shown("one")
    assert alice.worker.evaluate(CLICK) == {"opened": [], "focused": [alice.page.url]}
    alice.page.wait_for_function("heard.length === 1")
    assert alice.page.evaluate("[heard[0].type, heard[0].push.kind]") == ["greendot.push.clicked", "disk"]
    for url, opened in (("/disks/db1", True), ("https://elsewhere.example/", False), ("https://", False)):
        alice.shown()  # a clicked notification is closed
        alice.deliver(alice.notify(body={"url": url, "text": "another"}))
        alice.shown("another")
        expected = {"opened": [alice.site.url + "disks/db1"], "focused": []}
        assert alice.worker.evaluate(CLICK) == (expected if opened else {"opened": [], "focused": [alice.page.url]})


def test_a_push_without_content_or_with_nonsense_shows_something(alice: Subscribed) -> None:
    alice.subscribe()
    for nonsense in ([1, 2], "text", {"key": "k1", "id": "1", "kind": "secret"}):
        alice.deliver(nonsense)
    shown = alice.shown("", "", "")
    assert {one["title"] for one in shown} == {f"127.0.0.1:{alice.site.port}"}


def test_a_renewed_subscription_is_registered_and_an_ended_one_is_removed(alice: Subscribed) -> None:
    alice.subscribe()
    (before,) = alice.devices()
    alice.page.evaluate("lose()")
    alice.worker.evaluate(RENEW)
    alice.page.wait_for_function("calls.length === 2")
    for _ in range(500):
        (after,) = alice.devices()
        if after["token"] != before["token"]:
            break
        alice.page.wait_for_timeout(10)
    assert (after["device"], after["token"] != before["token"]) == (before["device"], True)
    content = alice.notify()
    assert alice.service.taken[-1].path.startswith("/push/1-"), content
    alice.page.evaluate("push.unsubscribePush(client)")
    assert alice.devices() == []
    alice.worker.evaluate(RENEW)
    alice.page.wait_for_function("heard.length === 2")
    assert (alice.devices(), alice.page.evaluate("calls.length")) == ([], 2), "a page that unsubscribed must not renew"


def test_the_url_of_the_service_worker_has_its_settings(alice: Subscribed) -> None:
    """Without an open page, the worker sends a renewed subscription to the backend of the site."""
    alice.subscribe(worker="/greendot-sw.js?title=Shop&url=/inbox&icon=/favicon.svg&renew=/push/renewed")
    alice.deliver({"key": "k1", "body": {"url": 7}})
    assert [one["title"] for one in alice.shown("")] == ["Shop"]
    alice.page.goto("about:blank")
    assert alice.worker.evaluate(CLICK) == {"opened": [alice.site.url + "inbox"], "focused": []}
    found = alice.worker.evaluate(RENEW_ALONE)
    assert (found["url"], found["method"]) == (alice.site.url + "push/renewed", "POST")
    assert json.loads(found["body"]) == {"old": "https://push.example/1", "subscription": {"endpoint": "https://new"}}
    assert found["key"] == [1, 2, 3]


def test_a_reloaded_page_registers_the_same_device(alice: Subscribed) -> None:
    alice.subscribe()
    alice.page.reload()
    alice.page.evaluate(BEGIN)
    alice.subscribe(ask=False)
    assert len(alice.devices()) == 1


def test_a_call_that_cannot_succeed_has_a_code(alice: Subscribed, chromium: Browser, serve: Serve) -> None:
    code = "(options) => push.subscribePush(client, options).then(() => null, ({ code }) => code)"
    alice.page.evaluate("client.close()")
    assert alice.page.evaluate(code, {}) == "closed"
    alice.page.evaluate("permission = 'default'")
    assert alice.page.evaluate(code, {"ask": False}) == "denied"
    alice.page.evaluate("permission = 'denied'")
    assert alice.page.evaluate(code, {}) == "denied"
    alice.page.evaluate("delete globalThis.PushManager")
    assert alice.page.evaluate(code, {}) == "unsupported"
    alice.page.evaluate("push.unsubscribePush(client)")
    with serve() as plain:  # without a key for Web Push
        context = chromium.new_context(bypass_csp=True)
        context.grant_permissions(["notifications"], origin=plain.url)
        context.add_init_script(SUBSCRIPTIONS % "[]")
        page = context.new_page()
        page.goto(plain.url + "favicon.svg")
        page.evaluate(BEGIN)
        assert page.evaluate(code, {}) == "not_set_up"
        context.close()


def test_the_browsers_own_subscribe_takes_the_key(alice: Subscribed, chromium: Browser) -> None:
    """The browser aborts at its push service; the headless shell before it. A wrong key has another error."""
    context = chromium.new_context(bypass_csp=True)
    context.grant_permissions(["notifications"], origin=alice.site.url)
    context.add_init_script('Object.defineProperty(Notification, "permission", { get: () => "default" });')
    page = context.new_page()
    page.goto(alice.site.url + "favicon.svg")
    page.evaluate(BEGIN)
    failure = page.evaluate("() => push.subscribePush(client).then(() => null, ({ name }) => name)")
    assert failure in (None, "AbortError"), "the key or the worker was refused"
    context.close()
