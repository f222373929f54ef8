// @vitest-environment node
// What is published: as a module and as CommonJS. Their types are looked at by `npm run check`, with test/consumer.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { beforeAll, expect, test } from "vitest";
// @ts-expect-error: a script without types
import { bundles } from "../build.mjs";
import * as source from "../src/index.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "node_modules/.built"); // under the package: it finds what a user of it would
const require = createRequire(import.meta.url);

beforeAll(() => bundles(dist), 120_000);

test("both builds export what the sources do", async () => {
  const module = await import(/* @vite-ignore */ pathToFileURL(join(dist, "greendot-vue.js")).href);
  const common = require(join(dist, "cjs/greendot-vue.js"));
  for (const built of [module, common]) expect(Object.keys(built).sort()).toEqual(Object.keys(source).sort());
});

test("neither build brings a Vue or a client of its own", () => {
  const text = readFileSync(join(dist, "greendot-vue.js"), "utf8");
  const imported = [...text.matchAll(/from "([^".][^"]*)"/g)].map(([, name]) => name);
  expect([...new Set(imported)].sort()).toEqual(["@greendot/client/stores", "vue"]);
});
