// @vitest-environment node
// What is published: as a module, as CommonJS, and their types.

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as source from "../src/index.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const consumer = join(dist, "consumer"); // under the package: it finds what a user of it would
const require = createRequire(import.meta.url);

beforeAll(() => {
  execFileSync(process.execPath, [join(root, "build.mjs")], { stdio: "inherit" });
}, 120_000);
afterAll(() => rmSync(consumer, { recursive: true, force: true }));

test("both builds export what the sources do, and say that they are for the client's side", async () => {
  const module = await import(/* @vite-ignore */ pathToFileURL(join(dist, "greendot-react.js")).href);
  const common = require(join(dist, "cjs/greendot-react.js"));
  for (const built of [module, common]) expect(Object.keys(built).sort()).toEqual(Object.keys(source).sort());
  for (const file of ["greendot-react.js", "cjs/greendot-react.js"]) {
    expect(readFileSync(join(dist, file), "utf8").startsWith('"use client";')).toBe(true);
  }
});

test("neither build brings a React or a client of its own", () => {
  const text = readFileSync(join(dist, "greendot-react.js"), "utf8");
  const imported = [...text.matchAll(/from "([^".][^"]*)"/g)].map(([, name]) => name);
  expect([...new Set(imported)].sort()).toEqual(["@greendot/client", "react"]);
});

test("the types are found by modules and by CommonJS", () => {
  const text = 'import { useRoom } from "@greendot/react";\nexport const room: () => number = () => useRoom<string>("lobby").messages[0]!.body.length;\n';
  mkdirSync(consumer, { recursive: true });
  for (const name of ["module.mts", "common.cts"]) writeFileSync(join(consumer, name), text);
  const tsc = require.resolve("typescript/bin/tsc");
  const flags = "--noEmit --strict --module nodenext --target es2022 --skipLibCheck --types react".split(" ");
  execFileSync(process.execPath, [tsc, ...flags, join(consumer, "module.mts"), join(consumer, "common.cts")], { cwd: consumer, stdio: "pipe" });
}, 60_000);
