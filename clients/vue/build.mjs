// Builds dist/ of @greendot/vue.

import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { front } from "../front.mjs";

export const { bundles, build } = front(dirname(fileURLToPath(import.meta.url)), { "greendot-vue": "src/index.ts" });

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
