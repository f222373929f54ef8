// Service worker of Greendot: shows pushes as notifications and opens the page when the user clicks one.
//
// Serve this file from your own site, best at /greendot-sw.js: a service worker sees only pages below its own folder. A
// site with a service worker of its own adds to it: importScripts("/greendot-sw.js").
//
// Settings are in the URL, for example /greendot-sw.js?title=Shop&icon=/icon.png&url=/inbox&renew=/push/renew
//   title  shown for a push without a title, by default the host of the site
//   icon   shown beside the text
//   url    page to open for a push whose body has no `url`, by default the scope of the worker
//   renew  gets a POST with {"old": ENDPOINT, "subscription": {…}} when the browser renews its subscription while no page
//          is open. Your backend registers the subscription with PUT /v1/users/{user}/devices/{device}

(() => {
  const settings = new URL(self.location.href).searchParams;
  const scope = () => self.registration.scope;
  const pages = () => self.clients.matchAll({ type: "window", includeUncontrolled: true });

  /** Return the push: its key, id, seq, kind, and what else the server sends. */
  function read(data) {
    try {
      return Object(data.json());
    } catch {
      return {};
    }
  }

  /** Show a push. A repeated push, and one with the same collapse key, replaces what is shown. */
  async function show(push) {
    const tag = push.collapse ?? push.key;
    const shown = tag === undefined ? [] : await self.registration.getNotifications({ tag });
    const before = shown.map(({ data }) => data?.push ?? {}).find(({ seq }) => seq >= push.seq);
    const newest = before ?? push; // an earlier push that arrives late does not replace a later one
    await self.registration.showNotification(newest.title ?? settings.get("title") ?? self.location.host, {
      body: newest.text ?? "",
      icon: settings.get("icon") ?? undefined,
      tag,
      renotify: tag !== undefined && !before,
      silent: before ? true : undefined,
      requireInteraction: newest.importance === "critical",
      timestamp: newest.created_at,
      data: { push: newest },
    });
  }

  /** Return the URL that a push is about; null if it has none. A URL of another site is not opened. */
  function place({ body }) {
    if (typeof body?.url !== "string" || !URL.canParse(body.url, scope())) return null;
    const url = new URL(body.url, scope());
    return url.origin === self.location.origin ? url.href : null;
  }

  /** Focus a page that shows the URL, or any page if the push has no URL of its own. Else open a page. */
  async function open(push) {
    const own = place(push);
    const url = own ?? new URL(settings.get("url") ?? "", scope()).href;
    const inside = (await pages()).filter((page) => page.url.startsWith(scope()));
    const page = inside.find((one) => one.url === url) ?? (own ? undefined : inside[0]);
    if (!page) return self.clients.openWindow(url);
    page.postMessage({ type: "greendot.push.clicked", push });
    return page.focus();
  }

  /** Subscribe again, and report it: the open pages register the subscription, or the backend of the site does. */
  async function renew({ oldSubscription: old, newSubscription }) {
    const { pushManager } = self.registration;
    const key = old?.options?.applicationServerKey;
    let subscription = newSubscription ?? (await pushManager.getSubscription());
    if (!subscription && key) subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
    for (const page of await pages()) page.postMessage({ type: "greendot.push.renewed" });
    const to = settings.get("renew");
    if (!to || !subscription) return;
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ old: old?.endpoint ?? null, subscription });
    await fetch(new URL(to, scope()), { method: "POST", credentials: "include", headers, body });
  }

  self.addEventListener("install", () => self.skipWaiting());
  self.addEventListener("push", (event) => event.waitUntil(show(read(event.data))));
  self.addEventListener("notificationclick", (event) => {
    const push = event.notification.data?.push;
    if (!push) return; // of the site itself
    event.notification.close();
    event.waitUntil(open(push));
  });
  self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event)));
})();
