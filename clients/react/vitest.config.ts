import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
const OLDER = ["react", "react-dom"].map((name) => ({ find: new RegExp(`^${name}(?=/|$)`), replacement: path(`../react18/node_modules/${name}`) }));
// The CommonJS build would load its own version of React.
const library = path("../node_modules/@testing-library/react/dist/@testing-library/react.esm.js");

/** Return the project that runs the tests with a version of React. */
function withReact(version: 18 | 19, include: string[]) {
  return {
    resolve: {
      alias: [
        { find: /^@greendot\/client$/, replacement: path("../js/src/index.ts") },
        { find: /^@greendot\/client\/stores$/, replacement: path("../js/src/stores/index.ts") },
        { find: /^@testing-library\/react$/, replacement: library },
        ...(version === 18 ? OLDER : []),
      ],
    },
    test: {
      name: `react-${version}`,
      include,
      environment: "jsdom",
      // jsdom on Node: the tests start the server.
      testTransformMode: { ssr: ["**/*"] },
      env: { REACT: String(version) },
      // The aliases apply to this library too.
      server: { deps: { inline: [/@testing-library\/react/] } },
      testTimeout: 15_000,
      hookTimeout: 30_000,
    },
  };
}

export default defineConfig({
  test: {
    projects: [
      { ...withReact(19, ["test/**/*.test.{ts,tsx}"]) },
      { ...withReact(18, ["test/unit/**/*.test.{ts,tsx}"]) },
    ],
    // Files share loaded modules, because loading jsdom takes a second. At most two at once, because test/server runs servers.
    poolOptions: { forks: { isolate: false, maxForks: 2 } },
  },
});
