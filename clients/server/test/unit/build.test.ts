// What is shipped: one module without imports, in two formats with the same exports.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
// @ts-expect-error: a script without types
import { builds } from "../../build.mjs";
import * as source from "../../src/index.js";

const { version, dependencies } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));

test("require() and import have the same exports, and load nothing else", async () => {
  const module = { exports: {} as Record<string, unknown> };
  new Function("module", "exports", "require", await builds.cjs())(module, module.exports, () => expect.fail("the package has no dependencies"));
  expect(Object.keys(module.exports).sort()).toEqual(Object.keys(source).sort());
  expect(await builds.esm()).not.toMatch(/^\s*import\b|\bimport\(|\brequire\(|\bprocess\.|\bBuffer\b/m);
  expect(dependencies).toBeUndefined();
});

test("the classes have their names in logs", async () => {
  const module = { exports: {} as typeof source };
  new Function("module", "exports", await builds.cjs())(module, module.exports);
  expect(module.exports.Server.name).toBe("Server");
  expect(module.exports.RateLimited.name).toBe("RateLimited");
});

test("requests name the version of the package", async () => {
  expect(await builds.esm()).toContain(`greendot-server-js/${version}`);
});
