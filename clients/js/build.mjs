// Builds dist/: ESM, CommonJS, one file for a script tag, and the types. With --web it also builds the files that every
// Greendot server serves: a module with source map and types. They are committed, because a clone must work without Node.

import { createHash } from "node:crypto";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build as bundle } from "esbuild";
import { bundledTypes, declarations } from "../types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { version } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
const web = (name) => join(here, "../../src/greendot/web", name);
export const WEB = web("greendot.js");
export const WEB_MAP = web("greendot.js.map");
export const WEB_TYPES = web("greendot.d.ts");
export const WEB_PUSH = web("greendot-push.js");
export const WEB_SSE = web("greendot-sse.js");
/** Page with the integrity hash of WEB. */
export const PAGE = join(here, "../../docs/javascript.md");
/** The service worker is not built: the package has the file that the server serves. */
const WORKER = web("greendot-sw.js");
const PUSH = { entryPoints: ["src/push.ts"] };
const SSE = "./sse.js";
const STREAM = { entryPoints: ["src/sse.ts"] };
/** The stores import the client from the module beside them, so an app has one copy of it. */
const beside = { name: "beside", setup: (on) => on.onResolve({ filter: /^\.\.\/index\.js$/ }, () => ({ path: "./greendot.js", external: true })) };
const STORES = { entryPoints: ["src/stores/index.ts"], plugins: [beside] };

async function bundled(options) {
  return (await outputs(options))[0].text;
}

async function outputs(options) {
  const result = await bundle({
    absWorkingDir: here,
    entryPoints: ["src/index.ts"],
    bundle: true,
    write: false,
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    define: { VERSION: JSON.stringify(version) },
    external: [SSE], // loaded by pages that need it
    mangleProps: /^_/, // internal names; data of the wire and options have no such name
    ...options,
  });
  return result.outputFiles;
}

const head = (what) => `// ${what} ${version}, Apache-2.0. Built from clients/js: npm run build:web`;

/** Return the module that servers serve, with its source map. */
export async function webModule() {
  const banner = { js: head("@greendot/client") };
  // Servers serve the module of event streams beside this one, under a name of its own.
  const served = { name: "served", setup: (on) => on.onResolve({ filter: /^\.\/sse\.js$/ }, () => ({ path: "./greendot-sse.js", external: true })) };
  const files = await outputs({ format: "esm", minify: true, sourcemap: "linked", outfile: WEB, banner, plugins: [served] });
  const [map, js] = files.map(({ text }) => text);
  const { sources, ...rest } = JSON.parse(map);
  // Developer tools show the sources under this name, wherever the server is.
  const named = sources.map((path) => `greendot://${path.replace(/^.*\/(?=src\/)/, "")}`);
  return { js, map: `${JSON.stringify({ ...rest, sources: named })}\n` };
}

/** Return the integrity hash of a module, as pages write it. */
export const integrity = (text) => `sha384-${createHash("sha384").update(text).digest("base64")}`;

/** Return the page with this integrity hash in place of each other one. */
export const withIntegrity = (page, hash) => page.replaceAll(/sha384-[A-Za-z0-9+/=]{64}/g, hash);

/** Makes the global the class, with the other exports as properties: `new Greendot({…})`, `Greendot.typingText(…)`. */
const GLOBAL = "Greendot = Object.assign(Greendot.Greendot, Greendot);";

export const builds = {
  // Shorter syntax here makes the bundles of apps 1 % smaller: their minifiers find less in a module that is one file.
  esm: () => bundled({ format: "esm", minifySyntax: true }),
  cjs: () => bundled({ format: "cjs" }),
  script: () => bundled({ format: "iife", globalName: "Greendot", minify: true, footer: { js: GLOBAL } }),
  /** Bundle of the client without the helpers, to measure its size. */
  core: () => {
    const contents = 'export { Greendot } from "./src/index.ts";';
    return bundled({ entryPoints: [], stdin: { contents, resolveDir: here }, format: "esm", minify: true });
  },
  webTypes: async () => `${head("Types of @greendot/client")}\n\n${bundledTypes(here)}`,
  sse: () => bundled({ ...STREAM, format: "esm" }),
  sseCjs: () => bundled({ ...STREAM, format: "cjs", platform: "node" }), // `import()` then finds the names
  webSse: async () => `${head("Event streams for pages, @greendot/client")}\n\n${await bundled({ ...STREAM, format: "esm" })}`,
  stores: () => bundled({ ...STORES, format: "esm", minifySyntax: true }),
  storesCjs: () => bundled({ ...STORES, format: "cjs" }),
  push: () => bundled({ ...PUSH, format: "esm" }),
  pushCjs: () => bundled({ ...PUSH, format: "cjs" }),
  webPush: async () => `${head("Web Push for pages, @greendot/client/push")}\n\n${await bundled({ ...PUSH, format: "esm" })}`,
};

/** Write dist/. */
export async function build() {
  const dist = join(here, "dist");
  await rm(dist, { recursive: true, force: true });
  await mkdir(join(dist, "cjs"), { recursive: true });
  await writeFile(join(dist, "greendot.js"), await builds.esm());
  await writeFile(join(dist, "greendot.iife.js"), await builds.script());
  await writeFile(join(dist, "cjs/greendot.js"), await builds.cjs());
  await writeFile(join(dist, "push.js"), await builds.push());
  await writeFile(join(dist, "cjs/push.js"), await builds.pushCjs());
  await writeFile(join(dist, "stores.js"), await builds.stores());
  await writeFile(join(dist, "cjs/stores.js"), await builds.storesCjs());
  await writeFile(join(dist, "sse.js"), await builds.sse());
  await writeFile(join(dist, "cjs/sse.js"), await builds.sseCjs());
  await cp(WORKER, join(dist, "greendot-sw.js"));
  await cp(join(here, "../../LICENSE"), join(here, "LICENSE"));
  // Everything in this folder is CommonJS, including the types.
  await writeFile(join(dist, "cjs/package.json"), '{ "type": "commonjs" }\n');
  declarations(here, join(dist, "types"));
  await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
  if (process.argv.includes("--web")) {
    const { js, map } = await webModule();
    await writeFile(WEB, js);
    await writeFile(WEB_MAP, map);
    await writeFile(WEB_TYPES, await builds.webTypes());
    await writeFile(PAGE, withIntegrity(await readFile(PAGE, "utf8"), integrity(js)));
    await writeFile(WEB_PUSH, await builds.webPush());
    await writeFile(WEB_SSE, await builds.webSse());
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
