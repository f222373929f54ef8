// Builds dist/: ESM, CommonJS and the types.

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build as bundled } from "esbuild";
import { declarations } from "../types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const { version } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));

async function bundle(options) {
  const result = await bundled({
    absWorkingDir: here,
    entryPoints: ["src/index.ts"],
    bundle: true,
    write: false,
    platform: "neutral", // Web APIs only: an import of a module of Node fails the build
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    define: { VERSION: JSON.stringify(version) },
    ...options,
  });
  return result.outputFiles[0].text;
}

export const builds = {
  esm: () => bundle({ format: "esm", minifySyntax: true }),
  cjs: () => bundle({ format: "cjs" }),
  script: () => bundle({ format: "iife", globalName: "GreendotServer" }), // for tests in an empty global scope
};

/** Write dist/. */
export async function build() {
  await rm(dist, { recursive: true, force: true });
  await mkdir(join(dist, "cjs"), { recursive: true });
  await writeFile(join(dist, "greendot-server.js"), await builds.esm());
  await writeFile(join(dist, "cjs/greendot-server.js"), await builds.cjs());
  await cp(join(here, "../../LICENSE"), join(here, "LICENSE"));
  // Everything in this folder is CommonJS, including the types.
  await writeFile(join(dist, "cjs/package.json"), '{ "type": "commonjs" }\n');
  declarations(here, join(dist, "types"));
  await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
