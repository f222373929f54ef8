// The package against a real server: in three runtimes, with its clients, and with the webhooks that it sends.

import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { GreendotServer, until } from "../../../js/test/server/greendot.js";
// @ts-expect-error: a script without types
import { FILE, typesOf } from "../../generate.mjs";
import { BadWebhook, Server } from "../../src/index.js";

const HERE = dirname(fileURLToPath(import.meta.url));
const PACKAGE = join(HERE, "../..");
const API_KEY = "an API key for the tests of the server SDK";
const SECRET = "a secret for the tests of the server SDK";
const HOOK_SECRETS = ["the new secret of the webhooks in tests", "the old secret of the webhooks in tests"];
const ALGORITHMS = {
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) },
  ES256: { name: "ECDSA", namedCurve: "P-256" },
  EdDSA: { name: "Ed25519" },
};

let server: GreendotServer;
let sdk: Server;
let app: HttpServer;
let folder: string;
const keys = new Map<string, CryptoKey>();
const jwks: object[] = [];
const delivered: { body: Buffer; headers: IncomingHttpHeaders }[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "greendot-sdk-"));
  for (const [alg, algorithm] of Object.entries(ALGORITHMS)) {
    const pair = (await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])) as CryptoKeyPair;
    keys.set(alg, pair.privateKey);
    jwks.push({ ...(await crypto.subtle.exportKey("jwk", pair.publicKey)), kid: alg, alg, use: "sig" });
  }
  app = createServer(async (request, answer) => {
    if (request.method === "POST") delivered.push({ body: Buffer.concat(await request.toArray()), headers: request.headers });
    answer.end(JSON.stringify({ keys: jwks }));
  });
  await new Promise<void>((resolve) => app.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(app.address() as AddressInfo).port}`;
  server = await GreendotServer.start({
    API_KEY,
    AUTH_SECRET: SECRET,
    AUTH_ALGORITHMS: ["HS256", ...keys.keys()].join(","),
    AUTH_JWKS_URL: `${address}/jwks.json`,
    WEBHOOKS_URL: `${address}/hook`,
    WEBHOOKS_SECRET: HOOK_SECRETS[0]!,
    WEBHOOKS_SECRET_BEFORE: HOOK_SECRETS[1]!,
    WEBHOOKS_ALLOW_PRIVATE: "127.0.0.0/8",
    WEBHOOKS_BATCH_WAIT_MS: "1",
  });
  sdk = new Server({ url: url(), apiKey: API_KEY, secret: SECRET, webhookSecret: HOOK_SECRETS });
});
afterEach(() => server.reset());
afterAll(async () => {
  await server?.stop();
  app.closeAllConnections();
  app.close();
  rmSync(folder, { recursive: true, force: true });
});

const url = () => `http://127.0.0.1:${server.port}`;

// --- the API ---

test("the committed types are those of the server's document (else: npm run generate --workspace server)", async () => {
  const document = await (await fetch(`${url()}/openapi.json`)).json();
  expect(readFileSync(FILE, "utf8")).toBe(typesOf(document));
});

test("types fail for a schema without a rule, and for a schema that is gone", async () => {
  const document = (await (await fetch(`${url()}/openapi.json`)).json()) as { components: { schemas: Record<string, any> } };
  document.components.schemas["Presence"].properties.user = { type: "tuple" };
  expect(() => typesOf(document)).toThrow('no rule for {"type":"tuple"}');
  delete document.components.schemas["RoomShown"];
  expect(() => typesOf(document)).toThrow("no schema RoomShown");
});

/** Operations without a method of their own: settings of devices, figures for operators, and other ways to the same data. */
const BY_REQUEST = [
  "DELETE /v1/users/{user}/devices/{device}",
  "DELETE /v1/users/{user}/presence/mode",
  "GET /v1/nodes",
  "GET /v1/push/key",
  "GET /v1/stats",
  "GET /v1/users/{user}/devices",
  "GET /v1/users/{user}/presence",
  "GET /v1/users/{user}/push",
  "PUT /v1/users/{user}/devices/{device}",
  "PUT /v1/users/{user}/push",
];

test("every operation has a method, except those for request()", () => {
  const known = [...readFileSync(FILE, "utf8").matchAll(/^  "([A-Z]+ \/.*)": \{$/gm)].map(([, name]) => name!);
  const code = readFileSync(join(PACKAGE, "src/server.ts"), "utf8").replace(/\/\*\*[^]*?\*\//g, "");
  expect(known.length).toBeGreaterThan(50);
  expect(known.filter((name) => !code.includes(`"${name}"`)).sort()).toEqual(BY_REQUEST);
});

// --- runtimes ---

const PROGRAM = `
import * as sdk from "${join(PACKAGE, "src/index.ts")}";
import { scenario } from "${join(HERE, "scenario.ts")}";
`;
/** Everything that the package may use: what browsers, Node, Bun, Deno and edge runtimes have in common. */
const WEB = { fetch, crypto, URL, URLSearchParams, TextEncoder, TextDecoder, AbortController, Headers, setTimeout, clearTimeout, atob, btoa };

async function program(format: "esm" | "iife", code: string): Promise<string> {
  const options = { stdin: { contents: PROGRAM + code, resolveDir: HERE }, bundle: true, write: false as const, format, target: "es2022" };
  return (await build(options)).outputFiles[0]!.text;
}

/** Return the path of Bun: in the npm package for this machine, from which the install script of `bun`, if it runs, moves it. */
function bun(): string {
  const modules = join(PACKAGE, "../node_modules");
  const { optionalDependencies } = JSON.parse(readFileSync(join(modules, "bun/package.json"), "utf8"));
  const paths = Object.keys(optionalDependencies).map((name) => join(modules, name, "bin/bun"));
  const found = [...paths, join(modules, "bun/bin/bun.exe")].find(existsSync);
  if (!found) throw new Error("the npm package bun has no binary for this machine; run npm ci in clients/");
  return found;
}

/** Return the path of Deno, in the npm package for this machine. */
function deno(): string {
  const modules = join(PACKAGE, "../node_modules");
  const { optionalDependencies } = JSON.parse(readFileSync(join(modules, "deno/package.json"), "utf8"));
  const found = Object.keys(optionalDependencies).map((name) => join(modules, name, "deno")).find(existsSync);
  if (!found) throw new Error("the npm package deno has no binary for this machine; run npm ci in clients/");
  return found;
}

async function inProcess(given: object, runtime: string, ...options: string[]): Promise<unknown> {
  const file = join(folder, "program.mjs");
  writeFileSync(file, await program("esm", "console.log(JSON.stringify(await scenario(sdk, JSON.parse((globalThis.Deno?.args ?? process.argv.slice(2))[0]))));"));
  const { stdout } = await promisify(execFile)(runtime, [...options, file, JSON.stringify(given)], { cwd: folder, timeout: 25_000, env: { ...process.env, DENO_DIR: folder, DENO_NO_UPDATE_CHECK: "1" } });
  return JSON.parse(stdout);
}

/** Run the scenario where nothing but Web APIs exists. */
async function inEmptyScope(given: object): Promise<unknown> {
  const context = createContext({ ...WEB, given: JSON.stringify(given) });
  const code = await program("iife", "globalThis.result = scenario(sdk, JSON.parse(given)).then(JSON.stringify);");
  runInContext(code, context);
  return JSON.parse(await context["result"]);
}

const RUNTIMES: [string, (given: object) => Promise<unknown>][] = [
  ["Node", (given) => inProcess(given, process.execPath)],
  ["Bun", (given) => inProcess(given, bun())],
  ["Deno", (given) => inProcess(given, deno(), "run", "--no-config", "--no-lock", "--no-remote", "--no-npm", "--allow-net=127.0.0.1")],
  ["a scope of Web APIs", inEmptyScope],
];

const OBSERVED = {
  claims: [true, "Älice 👋", ["team-*"], 60, "string"],
  room: [true, true, 0],
  members: [
    ["-alice", "admin"],
    ["-bob", "member"],
  ],
  messages: [true, 3, "delete"],
  operations: ["erased", "react", "erased", "delete"],
  readers: [0, []],
  inbox: [true, false, true, [true, true], 2, ["order.shipped", "news"]],
  info: { name: "Alice", info: { colour: "#06f" } },
  presence: [
    ["-alice", "offline", "Alice"],
    ["-bob", "offline", null],
  ],
  mode: "poll",
  contact: 5,
  online: [[], [], false, []],
  moderation: [
    [
      [true, "mod"],
      [null, "spam"],
    ],
    5,
    ["user.unmuted", "room.slow_mode", "room.archived"],
  ],
  devices: [],
  revoked: [0, 0],
  errors: [
    ["Forbidden", "forbidden", 403],
    ["NotFound", "no_such_room", 404],
    ["InvalidArgument", "invalid_argument", null],
    ["BadRequest", "bad_field", 400],
    ["BadKey", "bad_key", 401],
    ["Unreachable", "unreachable", null],
    ["BadWebhook", "bad_webhook", null],
  ],
};

test.each(RUNTIMES)("a backend works in %s", async (name, run) => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const nowhere = `http://127.0.0.1:${(closed.address() as AddressInfo).port}`;
  await new Promise((resolve) => closed.close(resolve));
  const prefix = name.replaceAll(" ", "-");
  const seen = await run({ url: url(), apiKey: API_KEY, secret: SECRET, webhookSecret: HOOK_SECRETS[0], nowhere, prefix });
  expect(seen).toEqual(OBSERVED);
});

// --- tokens ---

describe("tokens", () => {
  test("a token opens a connection with its name and its rooms", async () => {
    await sdk.putRoom("team-1");
    const alice = await server.online("alice", { getToken: () => sdk.token("alice", { name: "Alice L.", rooms: ["team-*"], info: { colour: "#06f" } }) });
    await alice.room("team-1").join();
    expect((await sdk.present("team-1")).profiles).toEqual({ alice: { name: "Alice L.", info: { colour: "#06f" } } });
    expect((await sdk.presence(["alice"]))[0]).toMatchObject({ state: "online", name: "Alice L." });
  });

  test("a token for reading does not send", async () => {
    await sdk.putRoom("lobby", { open: true });
    const alice = await server.online("alice", { getToken: () => sdk.token("alice", { send: false }) });
    await alice.room("lobby").join();
    await expect(alice.room("lobby").send("hello")).rejects.toMatchObject({ code: "forbidden" });
  });

  test("a token that is made in the second of a revocation is valid, and the earlier one is not", async () => {
    const early = await sdk.token("alice");
    const alice = await server.online("alice", { getToken: () => early });
    await until(() => Date.now() % 1000 < 500); // token and revocation in one second
    const revoked = await sdk.revokeUser("alice");
    await until(() => alice.state === "closed" || alice.state === "waiting");
    expect(revoked.closed).toBe(1);
    const again = await server.online("alice", { getToken: () => sdk.token("alice") });
    expect(again.state).toBe("online");
  });

  test.each(Object.keys(ALGORITHMS))("the server accepts tokens that a private key signs with %s, in every form of the key", async (alg) => {
    const key = keys.get(alg)!;
    const der = Buffer.from(await crypto.subtle.exportKey("pkcs8", key)).toString("base64");
    const pem = `-----BEGIN PRIVATE KEY-----\n${der.replace(/.{64}/g, "$&\n")}\n-----END PRIVATE KEY-----\n`;
    for (const privateKey of [key, await crypto.subtle.exportKey("jwk", key), pem]) {
      const signing = new Server({ url: url(), privateKey, keyId: alg });
      const client = await server.online("alice", { getToken: () => signing.token("alice") });
      client.close();
    }
  });

  test("sessions are listed and closed", async () => {
    const bob = await server.online("bob", { getToken: () => sdk.token("bob"), device: "phone" });
    const [session] = await sdk.sessions("bob");
    expect(session).toMatchObject({ user: "bob", device: "phone", state: "online" });
    expect((await sdk.online()).users).toContain("bob");
    expect(await sdk.disconnect(session!.session)).toBe(true);
    await until(() => bob.state === "closed");
    expect(bob.reason).toMatchObject({ code: 4503 });
  });

  test("typing is listed", async () => {
    await sdk.putRoom("lobby", { open: true });
    const bob = await server.online("bob", { getToken: () => sdk.token("bob", { name: "Bob" }) });
    await bob.room("lobby").join();
    bob.room("lobby").typing(true);
    while (!(await sdk.typing("lobby")).length) await new Promise((resolve) => setTimeout(resolve, 5));
    expect((await sdk.typing("lobby"))[0]).toMatchObject({ user: "bob", name: "Bob" });
  });
});

// --- webhooks ---

describe("webhooks", () => {
  /** Wait for the delivery of an event that has this text in its body. */
  async function delivery(text: string) {
    await until(() => delivered.some(({ body }) => body.includes(text)), 20_000);
    return delivered.find(({ body }) => body.includes(text))!;
  }

  test("a delivery of the server is verified with the new secret, with the old one and with both", async () => {
    await sdk.putRoom("hooked", { open: true });
    await sdk.send("hooked", { text: "webhook wörds" }, { user: "alice" });
    const { body, headers } = await delivery("webhook w");
    for (const webhookSecret of [...HOOK_SECRETS, HOOK_SECRETS, ["another", HOOK_SECRETS[1]!]]) {
      const { events } = await sdk.with({ webhookSecret }).verifyWebhook(body, headers);
      const event = events.find(({ type }) => type === "room.message")!;
      expect(event).toMatchObject({ tenant: "default", data: { room: "hooked", user: "alice", body: { text: "webhook wörds" } } });
    }
    expect((await sdk.verifyWebhook(body.toString(), headers)).id).toBe(headers["greendot-delivery"]);
  });

  test("a delivery with another secret, another body or another header is refused", async () => {
    await sdk.notify("alice", "hooked", { text: "second delivery" });
    const { body, headers } = await delivery("second delivery");
    const header = headers["greendot-signature"] as string;
    const replaced = Buffer.from(body.toString().replace("second", "third!"));
    const tries = [
      sdk.with({ webhookSecret: "another" }).verifyWebhook(body, headers),
      sdk.verifyWebhook(replaced, headers),
      sdk.verifyWebhook(body.subarray(1), headers),
      sdk.verifyWebhook(Buffer.concat([body, Buffer.from(" ")]), headers),
      sdk.verifyWebhook(body, header.replace(/t=(\d+)/, (_, seconds) => `t=${Number(seconds) + 1}`)),
      sdk.verifyWebhook(body, {}),
    ];
    for (const refused of await Promise.allSettled(tries)) expect(refused).toMatchObject({ status: "rejected", reason: expect.any(BadWebhook) });
  });
});
