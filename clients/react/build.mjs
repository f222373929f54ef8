// Builds dist/: ESM, CommonJS and the types. Build the client first, because its types are needed.

import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build as bundled } from "esbuild";
import { declarations } from "../types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");

/** The components import the hooks from the module beside them, so they find the provider of the app. */
const beside = { name: "beside", setup: (on) => on.onResolve({ filter: /^\.\.\/index\.js$/ }, () => ({ path: "./greendot-react.js", external: true })) };

function bundle(entry, format, outfile) {
  return bundled({
    absWorkingDir: here,
    entryPoints: [entry],
    plugins: [beside],
    jsx: "automatic",
    bundle: true,
    packages: "external",
    tsconfig: "tsconfig.build.json", // tsconfig.json would include the client's sources
    format,
    outfile,
    target: "es2022",
    charset: "utf8",
    // For frameworks with server components: hooks run on the client side.
    banner: { js: '"use client";' },
  });
}

/** Write the code, as ESM and as CommonJS, into a folder. */
export async function bundles(folder) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, "cjs"), { recursive: true });
  for (const [name, entry] of Object.entries({ "greendot-react": "src/index.ts", components: "src/components/index.ts" })) {
    await bundle(entry, "esm", join(folder, `${name}.js`));
    await bundle(entry, "cjs", join(folder, `cjs/${name}.js`));
  }
  // Everything in this folder is CommonJS, including the types.
  await writeFile(join(folder, "cjs/package.json"), '{ "type": "commonjs" }\n');
}

/** Write dist/. */
export async function build() {
  await bundles(dist);
  await cp(join(here, "../../LICENSE"), join(here, "LICENSE"));
  declarations(here, join(dist, "types"));
  await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
