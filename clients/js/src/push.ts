// Web Push for pages: import { subscribePush } from "@greendot/client/push". The service worker is greendot-sw.js.

import type { Greendot } from "./client.js";

const WORKER = "/greendot-sw.js";
/** Type of the message with which the service worker reports that the browser has another subscription. */
const RENEWED = "greendot.push.renewed";

export interface PushOptions {
  /** URL of the service worker, by default `/greendot-sw.js`; or a registration that the page already has. */
  worker?: string | URL | ServiceWorkerRegistration;
  /** Scope of the service worker, by default the folder of its URL. */
  scope?: string;
  /** False: if the user has not answered yet, fail with `denied` instead of asking. For calls when a page is opened. */
  ask?: boolean;
}

/**
 * Why a browser cannot be subscribed:
 *
 * - `unsupported`: the browser has no Web Push here. Pages need HTTPS, and on iPhones the page must be on the home screen
 * - `denied`: the user does not permit notifications
 * - `not_set_up`: the server has no Web Push: `push.webpush_key_file` is not set
 * - `closed`: the client was closed before the device was registered
 */
export type PushErrorCode = "unsupported" | "denied" | "not_set_up" | "closed";

export class PushError extends Error {
  override name = "PushError";

  constructor(
    readonly code: PushErrorCode,
    message: string,
  ) {
    super(message);
  }
}

type Client = Pick<Greendot, "state" | "on" | "request">;

/** Registrations that are renewed, by client: each client has one device. */
const renewals = new WeakMap<Client, () => void>();

/** Return whether the user permits notifications; `unsupported` if the browser has no Web Push here. */
export function pushPermission(): NotificationPermission | "unsupported" {
  const supported = typeof Notification !== "undefined" && "serviceWorker" in navigator && "PushManager" in globalThis;
  return supported ? Notification.permission : "unsupported";
}

/**
 * Subscribe this browser to Web Push and register it as the device of the client: the server then pushes notifications
 * to it while the user is away. Browsers ask the user only in a handler of a click. The registration is renewed if the
 * browser renews its subscription while the page is open. Call the function again when the page is opened.
 */
export async function subscribePush(client: Client, options: PushOptions = {}): Promise<PushSubscription> {
  let permission = pushPermission();
  if (permission === "unsupported") throw new PushError(permission, "this browser has no Web Push on this page");
  // Nothing may be awaited before this: browsers ask only as long as the click is fresh.
  if (permission === "default" && options.ask !== false) permission = await Notification.requestPermission();
  if (permission !== "granted") throw new PushError("denied", "the user does not permit notifications");
  const registration = await registered(options);
  const subscription = await register(client, registration);
  renewals.get(client)?.();
  const renew = ({ data }: MessageEvent) => {
    // A failure is repaired when the page calls subscribePush the next time.
    if (data?.type === RENEWED) register(client, registration).catch(() => {});
  };
  navigator.serviceWorker.addEventListener("message", renew);
  renewals.set(client, () => navigator.serviceWorker.removeEventListener("message", renew));
  return subscription;
}

/** End the subscription of this browser and remove its device, for example when the user signs out. */
export async function unsubscribePush(client: Client, options: PushOptions = {}): Promise<void> {
  renewals.get(client)?.();
  renewals.delete(client);
  if (pushPermission() === "unsupported") return;
  const { worker = WORKER, scope } = options;
  const found = isRegistration(worker) ? worker : await navigator.serviceWorker.getRegistration(scope ?? folder(worker));
  await (await found?.pushManager.getSubscription())?.unsubscribe();
  // If the client was closed, the server forgets the device at the next push: the push service refuses it.
  await send(client, "device.remove").catch((error) => {
    if (error.code !== "closed") throw error;
  });
}

function isRegistration(worker: PushOptions["worker"]): worker is ServiceWorkerRegistration {
  return typeof worker === "object" && "pushManager" in worker;
}

function folder(worker: string | URL): string {
  return new URL(".", new URL(worker, location.href)).href;
}

/** Return the registration of the service worker, when the worker is active: before that a browser does not subscribe. */
async function registered({ worker = WORKER, scope }: PushOptions): Promise<ServiceWorkerRegistration> {
  const found = isRegistration(worker) ? worker : await navigator.serviceWorker.register(worker, { scope });
  const coming = found.active ? null : found.installing ?? found.waiting;
  if (coming) {
    await new Promise<void>((resolve, reject) => {
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

/** Subscribe with the server's key and register the subscription. */
async function register(client: Client, { pushManager }: ServiceWorkerRegistration): Promise<PushSubscription> {
  const { public_key: text } = await send<{ public_key: string | null }>(client, "device.key");
  if (text === null) throw new PushError("not_set_up", "the server has no Web Push: set push.webpush_key_file");
  const key = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  let subscription = await pushManager.getSubscription();
  if (subscription && !same(subscription.options.applicationServerKey, key)) {
    await subscription.unsubscribe(); // the server has another key since
    subscription = null;
  }
  subscription ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  await send(client, "device.register", { provider: "webpush", token: JSON.stringify(subscription) });
  return subscription;
}

function same(one: ArrayBuffer | null | undefined, key: Uint8Array): boolean {
  const bytes = one && new Uint8Array(one);
  return !!bytes && bytes.length === key.length && bytes.every((byte, at) => byte === key[at]);
}

/** Send a command when there is a connection; again on the next one if the connection is lost before the answer. */
async function send<Reply>(client: Client, type: string, fields: object = {}): Promise<Reply> {
  while (true) {
    await online(client);
    try {
      return await client.request<Reply>(type, fields);
    } catch (error) {
      if ((error as { code?: string }).code !== "disconnected") throw error;
    }
  }
}

function online(client: Client): Promise<void> {
  return new Promise((resolve, reject) => {
    let undo = () => {};
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
