import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 15_000,
    hookTimeout: 30_000,
    // Files share loaded modules. At most two at once, because each file of test/server runs its own server.
    // Node 20 has undici's WebSocket behind this flag. Later versions have it without the flag and still accept the flag.
    poolOptions: { forks: { isolate: false, maxForks: 2, execArgv: ["--experimental-websocket"] } },
  },
});
