// What is shipped: small enough, usable from a script tag, from require and import, and the same as what is committed.

import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { transform } from "esbuild";
import { expect, test } from "vitest";
// @ts-expect-error: a script without types
import { builds, integrity, PAGE, WEB, WEB_MAP, WEB_PUSH, WEB_SSE, WEB_TYPES, webModule, withIntegrity } from "../../build.mjs";

const MOST_BYTES = 10_240; // of the sources; budgets.json has the size of the installed package
const MOST_SERVED_BYTES = 12_000;

test("the core is at most 10,240 bytes gzipped", async () => {
  expect(gzipSync(await builds.core(), { level: 9 }).length).toBeLessThanOrEqual(MOST_BYTES);
});

test("names with an underscore are internal: the build shortens them, and no option and no field of the protocol has one", async () => {
  const internal = /(?<![\w#$…])_[a-z]\w*/i;
  expect(await builds.esm()).not.toMatch(internal);
  expect((await webModule()).js).not.toMatch(internal);
  for (const data of ["../../src/options.ts", "../../src/wire.ts", "../../../../docs/protocol.md"]) {
    expect(readFileSync(new URL(data, import.meta.url), "utf8")).not.toMatch(internal);
  }
});

test("the files the Python package serves are this client (else: npm run build:web)", async () => {
  const { js, map } = await webModule();
  expect(readFileSync(WEB, "utf8")).toBe(js);
  expect(readFileSync(WEB_MAP, "utf8")).toBe(map);
  expect(readFileSync(WEB_TYPES, "utf8")).toBe(await builds.webTypes());
  expect(readFileSync(WEB_PUSH, "utf8")).toBe(await builds.webPush());
  expect(readFileSync(WEB_SSE, "utf8")).toBe(await builds.webSse());
});

test("the served module is at most 12 kB gzipped, and its map has all sources and no path of this machine", async () => {
  const { js, map } = await webModule();
  expect(gzipSync(js, { level: 9 }).length).toBeLessThanOrEqual(MOST_SERVED_BYTES);
  expect(js.trimEnd().endsWith("//# sourceMappingURL=greendot.js.map")).toBe(true);
  const { sources, sourcesContent } = JSON.parse(map);
  expect(sources).toContain("greendot://src/client.ts");
  expect(sources.every((name: string) => /^greendot:\/\/src\/\w+\.ts$/.test(name))).toBe(true);
  expect(sourcesContent.length).toBe(sources.length);
});

test("the page has the integrity hash of the served module (else: npm run build:web)", async () => {
  const page = readFileSync(PAGE, "utf8");
  const hash = integrity((await webModule()).js);
  expect(page).toContain(hash);
  expect(withIntegrity(page, hash)).toBe(page);
});

test("the helper for Web Push is small and not part of the client", async () => {
  expect(gzipSync(await builds.push(), { level: 9 }).length).toBeLessThanOrEqual(3_000);
  expect(await builds.core()).not.toContain("pushManager");
});

test("event streams are small and not part of the client, which loads them by name", async () => {
  expect(gzipSync(await builds.sse(), { level: 9 }).length).toBeLessThanOrEqual(3_000);
  expect(await builds.core()).not.toContain("text/event-stream");
  for (const build of ["esm", "cjs", "script"]) expect(await builds[build]()).toContain('import("./sse.js")');
  expect((await webModule()).js).toContain('import("./greendot-sse.js")');
});

test("the stores are small, not part of the client, and use the client beside them", async () => {
  for (const build of ["stores", "storesCjs"]) {
    const text = await builds[build]();
    const imported = [...text.matchAll(/(?:from |require\()"([^"]+)"/g)].map(([, name]) => name);
    expect([...new Set(imported)]).toEqual(["./greendot.js"]);
    expect(text).not.toContain("WebSocket");
  }
  const { code } = await transform(await builds.stores(), { minify: true, format: "esm" });
  expect(gzipSync(code, { level: 9 }).length).toBeLessThanOrEqual(4_950);
  expect(await builds.core()).not.toContain("outgoing");
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
