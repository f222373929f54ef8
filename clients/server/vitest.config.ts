import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // Files share loaded modules. At most two at once, because files of test/server run servers.
    poolOptions: { forks: { isolate: false, maxForks: 2 } },
  },
});
