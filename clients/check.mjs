// Checks the types of the packages and of programs that use them: node check.mjs [--json] (PACKAGE | TSCONFIG)…

import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build as js } from "./js/build.mjs";
import { build as react } from "./react/build.mjs";
import { build as server } from "./server/build.mjs";
import { build as vue } from "./vue/build.mjs";
import { wrongIn } from "./types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const project = (...path) => wrongIn(join(here, ...path, "tsconfig.json"));

const PACKAGES = {
  js: async () => [...project("js"), ...(await js(), project("js/test/consumer"))],
  react: async () => [...project("react"), ...(await react(), project("react/test/consumer"))],
  vue: async () => [...project("vue"), ...(await vue(), project("vue/test/consumer"))],
  react18: async () => project("react18"),
  server: async () => [...project("server"), ...(await server(), project("server/test/consumer"))],
};

const asked = process.argv.slice(2).filter((word) => word !== "--json");
const found = {};
for (const name of asked) found[name] = await (PACKAGES[name] ?? (async () => wrongIn(resolve(name))))();
if (process.argv.includes("--json")) console.log(JSON.stringify(found));
else for (const line of Object.values(found).flat()) console.log(line);
process.exitCode = Object.values(found).some((wrong) => wrong.length) ? 1 : 0;
