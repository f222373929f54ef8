import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
// The oldest version that the package is for.
const OLDEST = [
  { find: /^vue$/, replacement: path("../node_modules/vue34/index.mjs") },
  { find: /^vue\/server-renderer$/, replacement: path("../node_modules/vue34/server-renderer/index.mjs") },
];

/** Return the project that runs the tests with a version of Vue. */
function withVue(version: "3.4" | "3.5", include: string[]) {
  return {
    resolve: {
      alias: [
        { find: /^@greendot\/client$/, replacement: path("../js/src/index.ts") },
        { find: /^@greendot\/client\/stores$/, replacement: path("../js/src/stores/index.ts") },
        ...(version === "3.4" ? OLDEST : []),
      ],
    },
    test: {
      name: `vue-${version}`,
      include,
      environment: "jsdom",
      // jsdom on Node: the tests start the server.
      testTransformMode: { ssr: ["**/*"] },
      env: { VUE: version },
      testTimeout: 15_000,
      hookTimeout: 30_000,
    },
  };
}

export default defineConfig({
  test: {
    projects: [withVue("3.5", ["test/**/*.test.ts"]), withVue("3.4", ["test/unit/**/*.test.ts"])],
    // Files share loaded modules, because loading jsdom takes a second.
    poolOptions: { forks: { isolate: false, maxForks: 2 } },
  },
});
