// What is shipped: small enough, usable from a script tag, from require and import, and the same as what is committed.

import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
// @ts-expect-error: a script without types
import { builds, WEB, WEB_PUSH, WEB_SSE } from "../../build.mjs";

const MOST_BYTES = 10_500;

test("the core is at most 10.5 kB gzipped", async () => {
  expect(gzipSync(await builds.core(), { level: 9 }).length).toBeLessThanOrEqual(MOST_BYTES);
});

test("the copy the Python package serves is this client (else: npm run build:web)", async () => {
  expect(readFileSync(WEB, "utf8")).toBe(await builds.web());
  expect(readFileSync(WEB_PUSH, "utf8")).toBe(await builds.webPush());
  expect(readFileSync(WEB_SSE, "utf8")).toBe(await builds.webSse());
});

test("the helper for Web Push is small and not part of the client", async () => {
  expect(gzipSync(await builds.push(), { level: 9 }).length).toBeLessThanOrEqual(3_000);
  expect(await builds.core()).not.toContain("pushManager");
});

test("event streams are small and not part of the client, which loads them by name", async () => {
  expect(gzipSync(await builds.sse(), { level: 9 }).length).toBeLessThanOrEqual(3_000);
  expect(await builds.core()).not.toContain("text/event-stream");
  for (const [build, name] of [["esm", "./sse.js"], ["cjs", "./sse.js"], ["script", "./sse.js"], ["web", "./greendot-sse.js"]]) {
    expect(await builds[build!]()).toContain(`import("${name}")`);
  }
});

test("with a script tag there is one global: the class, with the helpers on it", async () => {
  const page = createContext({ URL, TextEncoder, TextDecoder, setTimeout, clearTimeout, crypto, queueMicrotask });
  const before = new Set(runInContext("Object.getOwnPropertyNames(globalThis)", page));
  runInContext(await builds.script(), page);
  const added = runInContext("Object.getOwnPropertyNames(globalThis)", page).filter((name: string) => !before.has(name));
  expect(added).toEqual(["Greendot"]);
  expect(runInContext("new Greendot({ url: 'ws://example.com', getToken: () => '' }).state", page)).toBe("idle");
  expect(runInContext("Greendot.typingText(['Alice'])", page)).toBe("Alice is typing…");
});

test("require() and import have the same things", async () => {
  const module = { exports: {} as Record<string, unknown> };
  new Function("module", "exports", "require", await builds.cjs())(module, module.exports, () => {
    throw new Error("the client has no dependencies");
  });
  expect(Object.keys(module.exports).sort()).toEqual(Object.keys(await import("../../src/index.js")).sort());
});
