// Builds dist/: the page and one script.

import { cp, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));

await rm(path("dist"), { recursive: true, force: true });
await cp(path("public"), path("dist"), { recursive: true });
// The service worker of push notifications. In your own app: node_modules/@greendot/client/dist/greendot-sw.js
await cp(path("../../src/greendot/web/greendot-sw.js"), path("dist/greendot-sw.js"));
await build({
  entryPoints: [path("src/main.tsx")],
  outfile: path("dist/main.js"),
  bundle: true,
  minify: true,
  format: "esm",
  jsx: "automatic",
  target: "es2022",
  define: { "process.env.NODE_ENV": '"production"' },
  alias: {
    // The packages of this clone. In your own app: npm install @greendot/client @greendot/react
    "@greendot/client": path("../../clients/js/src/index.ts"),
    "@greendot/client/stores": path("../../clients/js/src/stores/index.ts"),
    "@greendot/client/push": path("../../clients/js/src/push.ts"),
    "@greendot/react/components": path("../../clients/react/src/components/index.ts"),
    "@greendot/react": path("../../clients/react/src/index.ts"),
    // One React for the packages and the app.
    react: path("node_modules/react"),
  },
});
