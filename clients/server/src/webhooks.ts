// Webhooks: their events, and the check that Greendot has sent them.

import type { AuditEntry, Message } from "./api.js";
import { isText } from "./checks.js";
import { BadWebhook, InvalidArgument } from "./errors.js";
import { bytes, hex, hmacKey } from "./tokens.js";

const SIGNATURE = "greendot-signature";
const TOLERANCE_S = 300;
const MOST_HEADER = 1_024; // characters; two signatures have 150

/** Data of each type of event. docs/webhooks.md describes when Greendot sends them. */
export interface HookData {
  "user.online": { user: string };
  "user.offline": { user: string };
  "room.occupied": { room: string };
  "room.vacated": { room: string };
  "room.message": Message;
  "notification.created": { user: string; seq: number; id: string; kind: string; body: unknown; created_at: number; ack: boolean };
  "notification.updated": { user: string; state: "seen" | "read" | "archived" | "acked"; ids: string[] };
  "audit.created": Omit<AuditEntry, "at">;
  /** Sent by `greendot webhooks test`. */
  ping: Record<string, unknown>;
}

/** Event of a webhook. An event that is sent again has the same id. Ignore types that you do not know. */
export type HookEvent = {
  [Type in keyof HookData]: { id: string; type: Type; tenant: string; at: number; data: HookData[Type] };
}[keyof HookData];

/** Body of one webhook request. */
export interface HookDelivery {
  id: string;
  sent_at: number;
  events: HookEvent[];
}

/** Headers of a request, as frameworks have them, or the value of `Greendot-Signature`. */
export type HookHeaders = Headers | Record<string, string | string[] | undefined> | string | null | undefined;

export interface HookOptions {
  /** Seconds by which the time of the signature may be before or after the time of this machine. The default is 300. */
  tolerance?: number;
}

/**
 * Return the content of a webhook if its signature is right and recent. Otherwise throw BadWebhook: answer the request with 400.
 *
 * `body` is the body of the request as it was received, not parsed. If you pass several secrets, a signature with one of
 * them is enough: while you replace the secret, pass the old and the new one. Without a secret, throw InvalidArgument.
 */
export async function verifyWebhook(
  body: string | Uint8Array | ArrayBuffer,
  headers: HookHeaders,
  secret: string | readonly string[],
  { tolerance = TOLERANCE_S }: HookOptions = {},
): Promise<HookDelivery> {
  const secrets = isText(secret) ? [secret] : [...(secret ?? [])];
  if (!secrets.length || !secrets.every((one) => isText(one) && one)) {
    throw new InvalidArgument("there is no secret to verify the webhook with; set webhookSecret of Server, or pass the secret to verifyWebhook");
  }
  if (!(tolerance >= 0)) throw new InvalidArgument("tolerance is a number of seconds, 0 or more");
  const content = contentOf(body);
  const { seconds, given } = partsOf(headerOf(headers));
  const signed = new Uint8Array([...bytes(`${seconds}.`), ...content]);
  let matches = false;
  for (const one of secrets) {
    const expected = hex(new Uint8Array(await crypto.subtle.sign("HMAC", await hmacKey(one), signed as BufferSource)));
    for (const signature of given) matches = isSame(expected, signature) || matches; // all of them, each in constant time
  }
  // The time is checked after the signature: a sender without the secret learns nothing about the clock.
  if (!matches) throw new BadWebhook("the signature does not match; check the secret, and pass the body exactly as received");
  if (!(Math.abs(Date.now() / 1000 - Number(seconds)) <= tolerance)) {
    throw new BadWebhook("the signature is too old or from the future; check the clocks of the app and the server");
  }
  return deliveryOf(content);
}

function contentOf(body: unknown): Uint8Array {
  if (isText(body)) return bytes(body);
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  // By its name: the class of another realm, such as that of a worker, is another one.
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") return new Uint8Array(body as ArrayBuffer);
  throw new InvalidArgument("body is the body of the request as text or bytes, exactly as received and not parsed");
}

function headerOf(headers: HookHeaders): string {
  if (isText(headers)) return headers;
  if (typeof (headers as Headers | null)?.get === "function") return (headers as Headers).get(SIGNATURE) ?? "";
  const value = Object.entries(headers ?? {}).find(([name]) => name.toLowerCase() === SIGNATURE)?.[1];
  return String(value ?? ""); // of an array, its items joined by commas
}

function partsOf(header: string): { seconds: string; given: string[] } {
  const parts = header.length > MOST_HEADER ? [] : header.split(",").map((part) => part.trim());
  const of = (name: string) => parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
  const seconds = of("t").at(-1) ?? "";
  const given = of("v1");
  if (!/^\d{1,12}$/.test(seconds) || !given.length) throw new BadWebhook("the webhook has no Greendot-Signature header with `t` and `v1`");
  return { seconds, given };
}

/** Return whether two texts are the same. The time depends on the length of `expected` only. */
function isSame(expected: string, given: string): boolean {
  let difference = given.length ^ expected.length;
  for (let at = 0; at < expected.length; at++) difference |= expected.charCodeAt(at) ^ given.charCodeAt(at);
  return difference === 0;
}

function deliveryOf(content: Uint8Array): HookDelivery {
  try {
    const delivery = JSON.parse(new TextDecoder().decode(content)) as HookDelivery;
    if (Array.isArray(delivery.events)) return delivery;
  } catch {
    // Below.
  }
  throw new BadWebhook("the webhook is signed, but this version of the package cannot read its body; update the package");
}
