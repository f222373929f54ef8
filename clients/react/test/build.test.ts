// @vitest-environment node
// What is published: as a module and as CommonJS. Their types are looked at by `npm run check`, with test/consumer.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { beforeAll, expect, test } from "vitest";
// @ts-expect-error: a script without types
import { bundles } from "../build.mjs";
import * as components from "../src/components/index.js";
import * as source from "../src/index.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "node_modules/.built"); // under the package: it finds what a user of it would
const require = createRequire(import.meta.url);

beforeAll(() => bundles(dist), 120_000);

test("both builds export what the sources do, and say that they are for the client's side", async () => {
  for (const [file, exported] of Object.entries({ "greendot-react.js": source, "components.js": components })) {
    const module = await import(/* @vite-ignore */ pathToFileURL(join(dist, file)).href);
    const common = require(join(dist, "cjs", file));
    for (const built of [module, common]) expect(Object.keys(built).sort()).toEqual(Object.keys(exported).sort());
    for (const path of [file, join("cjs", file)]) expect(readFileSync(join(dist, path), "utf8").startsWith('"use client";')).toBe(true);
  }
});

test("no build brings a React or a client of its own, and the components use the hooks beside them", () => {
  const importedBy = (file: string) => {
    const found = readFileSync(join(dist, file), "utf8").matchAll(/from "([^"]*)"/g);
    return [...new Set([...found].map(([, name]) => name))].sort();
  };
  expect(importedBy("greendot-react.js")).toEqual(["@greendot/client/stores", "react"]);
  expect(importedBy("components.js")).toEqual(["./greendot-react.js", "react", "react/jsx-runtime"]);
});
