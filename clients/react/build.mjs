// Builds dist/: ESM, CommonJS and the types. The client has to be built before, for its types.

import { execFileSync } from "node:child_process";
import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");

function bundle(format, outfile) {
  return build({
    absWorkingDir: here,
    entryPoints: ["src/index.ts"],
    bundle: true,
    packages: "external",
    tsconfig: "tsconfig.build.json", // the other one leads to the client's sources, which are not to be in here
    format,
    outfile,
    target: "es2022",
    charset: "utf8",
    // For frameworks with server components: hooks are for the client's side.
    banner: { js: '"use client";' },
  });
}

function types(folder) {
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  const flags = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--stripInternal", "--rootDir", "src"];
  execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json", ...flags, "--outDir", folder], { cwd: here, stdio: "inherit" });
}

await rm(dist, { recursive: true, force: true });
await mkdir(join(dist, "cjs"), { recursive: true });
await bundle("esm", join(dist, "greendot-react.js"));
await bundle("cjs", join(dist, "cjs/greendot-react.js"));
// Everything in this folder is CommonJS, the types too.
await writeFile(join(dist, "cjs/package.json"), '{ "type": "commonjs" }\n');
types(join(dist, "types"));
await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
