import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
const client = path("../js/src/index.ts");
const OLDER = ["react", "react-dom"].map((name) => ({ find: new RegExp(`^${name}(?=/|$)`), replacement: path(`../react18/node_modules/${name}`) }));
// Its CommonJS would require a React of its own choice.
const library = path("../node_modules/@testing-library/react/dist/@testing-library/react.esm.js");

/** The same tests with another React. */
function withReact(version: 18 | 19, include: string[]) {
  return {
    resolve: {
      alias: [
        { find: /^@greendot\/client$/, replacement: client },
        { find: /^@testing-library\/react$/, replacement: library },
        ...(version === 18 ? OLDER : []),
      ],
    },
    test: {
      name: `react-${version}`,
      include,
      environment: "jsdom",
      // A page, but on Node: the server is started from here.
      testTransformMode: { ssr: ["**/*"] },
      env: { REACT: String(version) },
      // Through the aliases, too.
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
    // Files share what is loaded: a page takes a second each time. Few at once: a file of test/server runs a server.
    poolOptions: { forks: { isolate: false, maxForks: 2 } },
  },
});
