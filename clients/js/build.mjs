// Builds dist/: ESM, CommonJS, one file for a script tag, and the types. With --web it also builds the copy that the
// Python package serves. That copy is committed, because a clone must work without Node.

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build as bundle } from "esbuild";
import { declarations } from "../types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { version } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
const web = (name) => join(here, "../../src/greendot/web", name);
export const WEB = web("greendot.js");
export const WEB_PUSH = web("greendot-push.js");
export const WEB_SSE = web("greendot-sse.js");
/** The service worker is not built: the package has the file that the server serves. */
const WORKER = web("greendot-sw.js");
const PUSH = { entryPoints: ["src/push.ts"] };
const SSE = "./sse.js";
const STREAM = { entryPoints: ["src/sse.ts"] };

async function bundled(options) {
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
    ...options,
  });
  return result.outputFiles[0].text;
}

/** Makes the global the class, with the other exports as properties: `new Greendot({…})`, `Greendot.typingText(…)`. */
const GLOBAL = "Greendot = Object.assign(Greendot.Greendot, Greendot);";

export const builds = {
  esm: () => bundled({ format: "esm" }),
  cjs: () => bundled({ format: "cjs" }),
  script: () => bundled({ format: "iife", globalName: "Greendot", minify: true, footer: { js: GLOBAL } }),
  /** Bundle of the client without the helpers, to measure its size. */
  core: () => {
    const contents = 'export { Greendot } from "./src/index.ts";';
    return bundled({ entryPoints: [], stdin: { contents, resolveDir: here }, format: "esm", minify: true });
  },
  web: async () =>
    `// The JavaScript client, @greendot/client ${version}, as one module. Built from clients/js: npm run build:web\n\n` +
    (await bundled({ format: "esm" })).replaceAll(SSE, "./greendot-sse.js"),
  sse: () => bundled({ ...STREAM, format: "esm" }),
  sseCjs: () => bundled({ ...STREAM, format: "cjs", platform: "node" }), // `import()` then finds the names
  webSse: async () =>
    `// Event streams for pages, @greendot/client ${version}. Built from clients/js: npm run build:web\n\n` +
    (await bundled({ ...STREAM, format: "esm" })),
  push: () => bundled({ ...PUSH, format: "esm" }),
  pushCjs: () => bundled({ ...PUSH, format: "cjs" }),
  webPush: async () =>
    `// Web Push for pages, @greendot/client/push ${version}. Built from clients/js: npm run build:web\n\n` +
    (await bundled({ ...PUSH, format: "esm" })),
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
  await writeFile(join(dist, "sse.js"), await builds.sse());
  await writeFile(join(dist, "cjs/sse.js"), await builds.sseCjs());
  await cp(WORKER, join(dist, "greendot-sw.js"));
  // Everything in this folder is CommonJS, including the types.
  await writeFile(join(dist, "cjs/package.json"), '{ "type": "commonjs" }\n');
  declarations(here, join(dist, "types"));
  await cp(join(dist, "types"), join(dist, "cjs/types"), { recursive: true });
  if (process.argv.includes("--web")) {
    await writeFile(WEB, await builds.web());
    await writeFile(WEB_PUSH, await builds.webPush());
    await writeFile(WEB_SSE, await builds.webSse());
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
