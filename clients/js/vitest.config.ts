import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 15_000,
    hookTimeout: 30_000,
    // Files share what is loaded. Few at once: each file of test/server runs a server of its own.
    // Node 20 has undici's WebSocket behind a flag; later ones have it without and still take the flag.
    poolOptions: { forks: { isolate: false, maxForks: 2, execArgv: ["--experimental-websocket"] } },
  },
});
