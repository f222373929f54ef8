// Builds dist/ of a front end, as ESM and as CommonJS, with the types. Build the client first, because its types are needed.

import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build as bundled } from "esbuild";
import { declarations } from "./types.mjs";

/** Return the functions that build the package in a folder. `entries` has a source for each file; the main one comes first. */
export function front(here, entries, options = {}) {
  const [main] = Object.keys(entries);
  // Other entries import the main one from the module beside them, so they find the provider of the app.
  const beside = { name: "beside", setup: (on) => on.onResolve({ filter: /^\.\.\/index\.js$/ }, () => ({ path: `./${main}.js`, external: true })) };

  async function bundle(name, format, folder) {
    await bundled({
      absWorkingDir: here,
      entryPoints: [entries[name]],
      plugins: [beside],
      bundle: true,
      packages: "external",
      tsconfig: "tsconfig.build.json", // tsconfig.json would include the client's sources
      format,
      outfile: join(folder, `${name}.js`),
      target: "es2022",
      charset: "utf8",
      ...options,
    });
  }

  /** Write the code into a folder. */
  async function bundles(folder) {
    await rm(folder, { recursive: true, force: true });
    await mkdir(join(folder, "cjs"), { recursive: true });
    for (const name of Object.keys(entries)) {
      await bundle(name, "esm", folder);
      await bundle(name, "cjs", join(folder, "cjs"));
    }
    // Everything in this folder is CommonJS, including the types.
    await writeFile(join(folder, "cjs/package.json"), '{ "type": "commonjs" }\n');
  }

  /** Write dist/. */
  async function build() {
    const dist = join(here, "dist");
    await bundles(dist);
    await cp(join(here, "../../LICENSE"), join(here, "LICENSE"));
    declarations(here, join(dist, "types"));
    await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
  }

  return { bundles, build };
}
