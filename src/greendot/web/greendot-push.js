// Web Push for pages, @greendot/client/push 0.1.0, Apache-2.0. Built from clients/js: npm run build:web

// src/push.ts
var WORKER = "/greendot-sw.js";
var RENEWED = "greendot.push.renewed";
var PushError = class extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
  code;
  name = "PushError";
};
var renewals = /* @__PURE__ */ new WeakMap();
function pushPermission() {
  const supported = typeof Notification !== "undefined" && "serviceWorker" in navigator && "PushManager" in globalThis;
  return supported ? Notification.permission : "unsupported";
}
async function subscribePush(client, options = {}) {
  let permission = pushPermission();
  if (permission === "unsupported") throw new PushError(permission, "this browser has no Web Push on this page");
  if (permission === "default" && options.ask !== false) permission = await Notification.requestPermission();
  if (permission !== "granted") throw new PushError("denied", "the user does not permit notifications");
  const registration = await registered(options);
  const subscription = await register(client, registration);
  renewals.get(client)?.();
  const renew = ({ data }) => {
    if (data?.type === RENEWED) register(client, registration).catch(() => {
    });
  };
  navigator.serviceWorker.addEventListener("message", renew);
  renewals.set(client, () => navigator.serviceWorker.removeEventListener("message", renew));
  return subscription;
}
async function unsubscribePush(client, options = {}) {
  renewals.get(client)?.();
  renewals.delete(client);
  if (pushPermission() === "unsupported") return;
  const { worker = WORKER, scope } = options;
  const found = isRegistration(worker) ? worker : await navigator.serviceWorker.getRegistration(scope ?? folder(worker));
  await (await found?.pushManager.getSubscription())?.unsubscribe();
  await send(client, "device.remove").catch((error) => {
    if (error.code !== "closed") throw error;
  });
}
function isRegistration(worker) {
  return typeof worker === "object" && "pushManager" in worker;
}
function folder(worker) {
  return new URL(".", new URL(worker, location.href)).href;
}
async function registered({ worker = WORKER, scope }) {
  const found = isRegistration(worker) ? worker : await navigator.serviceWorker.register(worker, { scope });
  const coming = found.active ? null : found.installing ?? found.waiting;
  if (coming) {
    await new Promise((resolve, reject) => {
      const check = () => {
        if (coming.state === "activated") resolve();
        else if (coming.state === "redundant") reject(new Error("the service worker could not be installed"));
      };
      coming.addEventListener("statechange", check);
      check();
    });
  }
  return found;
}
async function register(client, { pushManager }) {
  const { public_key: text } = await send(client, "device.key");
  if (text === null) throw new PushError("not_set_up", "the server has no Web Push: set push.webpush_key_file");
  const key = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  let subscription = await pushManager.getSubscription();
  if (subscription && !same(subscription.options.applicationServerKey, key)) {
    await subscription.unsubscribe();
    subscription = null;
  }
  subscription ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  await send(client, "device.register", { provider: "webpush", token: JSON.stringify(subscription) });
  return subscription;
}
function same(one, key) {
  const bytes = one && new Uint8Array(one);
  return !!bytes && bytes.length === key.length && bytes.every((byte, at) => byte === key[at]);
}
async function send(client, type, fields = {}) {
  while (true) {
    await online(client);
    try {
      return await client.request(type, fields);
    } catch (error) {
      if (error.code !== "disconnected") throw error;
    }
  }
}
function online(client) {
  return new Promise((resolve, reject) => {
    let undo = () => {
    };
    const check = () => {
      if (client.state === "closed") reject(new PushError("closed", "the client is closed"));
      else if (client.state === "online") resolve();
      else return;
      undo();
    };
    undo = client.on("state", check);
    check();
  });
}
export {
  PushError,
  pushPermission,
  subscribePush,
  unsubscribePush
};
