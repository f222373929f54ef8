// Tokens: their claims, and the calls that are refused before a user gets a token that no server accepts.

import { createHmac } from "node:crypto";
import { inspect } from "node:util";
import { expect, test } from "vitest";
import { InvalidArgument, Server, type ServerOptions, type TokenOptions } from "../../src/index.js";

const SECRET = "a secret for the unit tests of tokens";
const made = (options: Partial<ServerOptions> = {}) => new Server({ url: "http://127.0.0.1:8000", secret: SECRET, ...options });

async function claims(options?: TokenOptions): Promise<Record<string, unknown>> {
  return JSON.parse(Buffer.from((await made().token("alice", options)).split(".")[1]!, "base64url").toString());
}

test("a token is a JWT with HS256, whose iat has milliseconds", async () => {
  const before = Date.now();
  const token = await made().token("alice");
  const [head, body, signature] = token.split(".") as [string, string, string];
  expect(JSON.parse(Buffer.from(head, "base64url").toString())).toEqual({ alg: "HS256", typ: "JWT" });
  expect(createHmac("sha256", SECRET).update(`${head}.${body}`).digest("base64url")).toBe(signature);
  const { iat } = JSON.parse(Buffer.from(body, "base64url").toString());
  expect(Math.round(iat * 1000)).toBeGreaterThanOrEqual(before);
  expect(Math.round(iat * 1000)).toBeLessThanOrEqual(Date.now());
});

test("claims that are left out are not in the token, and each token has an id", async () => {
  const { iat, exp, jti, ...rest } = await claims({ name: undefined, info: null });
  expect(rest).toEqual({ sub: "alice" });
  expect((exp as number) - (iat as number)).toBeCloseTo(3600, -1);
  expect(jti).toMatch(/^[0-9a-f]{16}$/);
  expect((await claims()).jti).not.toBe(jti);
});

test("all claims are passed on", async () => {
  const given = { name: "Älice", info: { a: [1] }, rooms: ["team-*"], watch: [], send: false, tenant: "acme", jti: "j", aud: ["a"], iss: "i" };
  expect(await claims({ ...given, rooms: new Set(given.rooms), ttl: 0.5 })).toMatchObject(given);
});

const deep = (levels: number): Record<string, unknown> => (levels ? { a: deep(levels - 1) } : {});
const REFUSED: [string, any, string][] = [
  ["a ttl of 0", { ttl: 0 }, "ttl is"],
  ["a ttl that is no number", { ttl: "3600" }, "ttl is"],
  ["an endless ttl", { ttl: Infinity }, "ttl is"],
  ["a misspelt option", { tll: 60 }, "token has no option tll"],
  ["a long name", { name: "x".repeat(201) }, "name is"],
  ["half of a surrogate pair", { name: "\ud800" }, "name is"],
  ["a pattern with a space", { rooms: ["team 1"] }, "rooms is"],
  ["patterns as one text", { rooms: "team-*" }, "rooms is"],
  ["too many patterns", { watch: Array(101).fill("x") }, "watch is"],
  ["a tenant with a slash", { tenant: "a/b" }, "tenant is not a valid id"],
  ["send as text", { send: "false" }, "send is"],
  ["a large info", { info: { text: "ä".repeat(600) } }, "info may have at most 1024 bytes as JSON, not 1211"],
  ["a deep info", { info: deep(65) }, "info may be nested"],
  ["info with half of a surrogate pair", { info: { text: "\udfff" } }, "info must have"],
  ["info that is a list", { info: [1] }, "info is"],
  ["info that is no JSON", { info: { count: 1n } }, "cannot be written as JSON"],
];

test.each(REFUSED)("%s is refused", async (_, options, message) => {
  const refused = made().token("alice", options);
  await expect(refused).rejects.toThrow(InvalidArgument);
  await expect(refused).rejects.toThrow(message);
});

test.each(["", "a b", "../x", "x".repeat(129), "älice", undefined, null, 5])("the user %j is refused", async (user: any) => {
  await expect(made().token(user)).rejects.toThrow("user is not a valid id");
});

test("a secret that is missing or short is refused, and shown nowhere", async () => {
  await expect(made({ secret: undefined }).token("alice")).rejects.toThrow("auth.secret");
  await expect(made({ secret: "too short" }).token("alice")).rejects.not.toThrow("too short");
  const server = made({ apiKey: "the api key", webhookSecret: "hook" });
  for (const text of [inspect(server, { depth: 9 }), JSON.stringify(server), String(server)]) expect(text).not.toMatch(/secret for|api key|hook/);
});

const PEM = (text: string) => `-----BEGIN PRIVATE KEY-----\n${text}\n-----END PRIVATE KEY-----`;
test.each([
  ["text that is no PEM", "a key"],
  ["PEM that is no base64", PEM("=a=")],
  ["PEM without a known key", PEM(Buffer.from("no key").toString("base64"))],
  ["PEM with half a key", PEM("MC4CAQAwBQYDK2VwBCIEIA==")],
  ["a JWK of another curve", { kty: "EC", crv: "P-384" }],
  ["a public JWK", { kty: "OKP", crv: "Ed25519", x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }],
  ["an object that is no key", {}],
])("%s is refused as a private key", async (_, privateKey) => {
  await expect(made({ privateKey }).token("alice")).rejects.toThrow(InvalidArgument);
});

test("other options keep the rest", async () => {
  const server = made();
  expect(server.with({ timeoutMs: 5 }).url).toBe("http://127.0.0.1:8000");
  expect(await server.with({ retries: 0 }).token("alice")).toMatch(/^ey/);
  await expect(server.with({ secret: "short" }).token("alice")).rejects.toThrow("auth.secret");
});
