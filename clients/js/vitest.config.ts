import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    typecheck: { enabled: true, include: ["test/**/*.test-d.ts"], tsconfig: "./tsconfig.json" },
    testTimeout: 15_000,
    hookTimeout: 30_000,
    // Few at once: each file of test/server runs a server of its own.
    // Node 20 has undici's WebSocket behind a flag; later ones have it without and still take the flag.
    poolOptions: { forks: { maxForks: 2, execArgv: ["--experimental-websocket"] } },
  },
});
