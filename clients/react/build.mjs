// Builds dist/ of @greendot/react: the hooks and the components.

import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { front } from "../front.mjs";

export const { bundles, build } = front(
  dirname(fileURLToPath(import.meta.url)),
  { "greendot-react": "src/index.ts", components: "src/components/index.ts" },
  // For frameworks with server components: hooks run on the client side.
  { jsx: "automatic", banner: { js: '"use client";' } },
);

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await build();
