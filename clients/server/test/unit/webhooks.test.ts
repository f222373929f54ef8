// The check of webhooks, with signatures made here as docs/webhooks.md describes them.

import { createHmac } from "node:crypto";
import { expect, test } from "vitest";
import { BadWebhook, type HookHeaders, InvalidArgument, Server, verifyWebhook } from "../../src/index.js";

const SECRET = "a secret for the unit tests of webhooks";
const BODY = '{"id":"d1","sent_at":1,"events":[{"id":"e1","type":"ping","tenant":"default","at":1,"data":{}}]}';
const now = () => Math.floor(Date.now() / 1000);
const sign = (body: string, seconds = now(), secret = SECRET) => createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
const header = (body = BODY, seconds = now(), secret = SECRET) => `t=${seconds},v1=${sign(body, seconds, secret)}`;

test.each<[string, () => HookHeaders]>([
  ["Headers", () => new Headers({ "Greendot-Signature": header() })],
  ["headers of Node", () => ({ host: "example.com", "greendot-signature": header() })],
  ["headers of AWS", () => ({ "Greendot-Signature": header() })],
  ["lists", () => ({ "greendot-signature": [`t=${now()}`, header().split(",")[1]!] })],
  ["the value alone", () => header()],
  ["a value with spaces", () => header().replace(",", ", ")],
  ["two signatures, of which the second is ours", () => header().replace(",", `,v1=${"0".repeat(64)},`)],
])("a webhook is accepted with %s", async (_, headers) => {
  expect((await verifyWebhook(BODY, headers(), SECRET)).events[0]).toMatchObject({ type: "ping", id: "e1" });
});

test("bodies of all types are accepted, also a part of a buffer", async () => {
  const whole = Buffer.from(`--${BODY}--`);
  for (const body of [BODY, Buffer.from(BODY), new Uint8Array(Buffer.from(BODY)).buffer, whole.subarray(2, -2)]) {
    expect((await verifyWebhook(body, header(), SECRET)).id).toBe("d1");
  }
});

test.each<[string, HookHeaders]>([
  ["no header", {}],
  ["null", null],
  ["an empty one", ""],
  ["no time", `v1=${sign(BODY)}`],
  ["no signature", `t=${now()}`],
  ["a time that is no number", `t=now,v1=${sign(BODY)}`],
  ["a negative time", `t=-1,v1=${sign(BODY)}`],
  ["a signature of another time", `t=${now() - 1},v1=${sign(BODY)}`],
  ["a signature of another body", header(`${BODY} `)],
  ["a signature with another secret", header(BODY, now(), "another secret")],
  ["part of the signature", header().slice(0, -1)],
  ["more than the signature", `${header()}0`],
  ["an empty signature", `t=${now()},v1=`],
  ["letters that are no hexadecimal", `t=${now()},v1=${"z".repeat(64)}`],
  ["a long header", `${header()},${"v1=0,".repeat(400)}`],
])("a webhook with %s is refused", async (_, headers) => {
  await expect(verifyWebhook(BODY, headers, SECRET)).rejects.toThrow(BadWebhook);
});

test("the time may differ by the tolerance, in both directions", async () => {
  for (const by of [-299, 299]) await verifyWebhook(BODY, header(BODY, now() + by), SECRET);
  for (const by of [-302, 302]) await expect(verifyWebhook(BODY, header(BODY, now() + by), SECRET)).rejects.toThrow("too old or from the future");
  await verifyWebhook(BODY, header(BODY, now() - 900), SECRET, { tolerance: 1_000 });
  await expect(verifyWebhook(BODY, header(BODY, now() - 20), SECRET, { tolerance: 10 })).rejects.toMatchObject({ code: "bad_webhook" });
});

test("an old signature with the wrong secret does not reveal that it is old", async () => {
  await expect(verifyWebhook(BODY, header(BODY, 1, "another"), SECRET)).rejects.toThrow("does not match");
});

test("a signed body that is no delivery is refused", async () => {
  for (const body of ["{}", "null", "[", '{"events":1}']) await expect(verifyWebhook(body, header(body), SECRET)).rejects.toThrow("cannot read its body");
});

test.each<[string, any, any, any]>([
  ["a parsed body", JSON.parse(BODY), SECRET, {}],
  ["no secret", BODY, "", {}],
  ["no secrets", BODY, [], {}],
  ["a secret that is not set", BODY, undefined, {}],
  ["an empty secret beside another", BODY, [SECRET, ""], {}],
  ["a tolerance that is no number", BODY, SECRET, { tolerance: NaN }],
])("%s is a wrong call", async (_, body, secret, options) => {
  await expect(verifyWebhook(body, header(), secret, options)).rejects.toThrow(InvalidArgument);
});

test.each([{}, { webhookSecret: undefined }, { webhookSecret: [] }])("a server without a secret names the option: %j", async (options) => {
  const call = new Server({ url: "http://127.0.0.1:1", ...options }).verifyWebhook(BODY, header());
  await expect(call).rejects.toThrow("set webhookSecret of Server");
  await expect(call).rejects.toBeInstanceOf(InvalidArgument);
});
