// A server that is full, stopping, or gone: each test has one of its own.

import { expect, test } from "vitest";
import type { Connection } from "../../src/index.js";
import { GreendotServer, heard, until } from "./greendot.js";

async function having(settings: Record<string, string>, story: (server: GreendotServer) => Promise<void>): Promise<void> {
  const server = await GreendotServer.start(settings);
  try {
    await story(server);
  } finally {
    await server.stop();
  }
}

test(
  "a server with no room for one more says when to come back; somebody who cannot wait may try (4003)",
  () =>
  having({ LIMITS_USER_CONNECTIONS: "1" }, async (server) => {
    const first = await server.online("alice");
    const second = server.client("alice");
    const states = heard<Connection>((on) => second.on("state", on));
    const hints: number[] = [];
    second.on("event", ({ type, data }) => type === "overloaded" && hints.push(data["retry_in_ms"] as number));
    second.connect();
    await until(() => second.state === "waiting");
    const { reason } = states.at(-1)!;
    expect(reason).toMatchObject({ code: 4003, action: "wait", text: "The server is very busy." });
    expect(hints[0]).toBeGreaterThan(0);
    expect(reason!.retryInMs).toBeGreaterThanOrEqual(hints[0]!);
    first.close();
    second.connect(); // "try now"
    await until(() => second.state === "online");
  }),
  40_000,
);

test(
  "a server that stops lets its clients know, and they come back to the next one (4000)",
  () =>
  having({}, async (server) => {
    const alice = await server.online("alice");
    const told: number[] = [];
    alice.room("lobby").on("message", ({ seq }) => told.push(seq));
    await alice.room("lobby").join();
    await alice.room("lobby").send("before");
    const states = heard<Connection>((on) => alice.on("state", on));
    const hints: number[] = [];
    alice.on("event", ({ type, data }) => type === "drain" && hints.push(data["retry_in_ms"] as number));
    await server.down("SIGTERM");
    await until(() => alice.state !== "online");
    expect(hints).toHaveLength(1);
    expect(states[0]).toMatchObject({ state: "waiting", reason: { code: 4000, text: "The server is restarting." } });
    expect(states[0]!.reason!.retryInMs).toBeGreaterThanOrEqual(hints[0]!);
    const sending = alice.room("lobby").send("meanwhile");
    await server.up();
    expect((await sending).seq).toBe(2);
    await until(() => told.length === 2);
    expect(told).toEqual([1, 2]);
  }),
  60_000,
);

test(
  "a server that is killed is found again, and no message is lost",
  () =>
  having({}, async (server) => {
    const [alice, bob] = [await server.online("alice"), await server.online("bob")];
    const told: number[] = [];
    bob.room("lobby").on("message", ({ seq }) => told.push(seq));
    const states = heard<string>((on) => bob.presence.watch("alice", ({ state }) => on(state)));
    await Promise.all([alice.room("lobby").join(), bob.room("lobby").join()]);
    await alice.room("lobby").send(1);
    await server.down("SIGKILL");
    const sending = [2, 3].map((n) => alice.room("lobby").send(n));
    await server.up();
    await Promise.all(sending);
    await until(() => told.length === 3);
    expect(told).toEqual([1, 2, 3]);
    await until(() => states.at(-1) === "online"); // though the new server counts versions anew
  }),
  60_000,
);

test(
  "a line that goes silent is given up, and the next one takes over",
  () =>
  having({ PRESENCE_HEARTBEAT_S: "1", PRESENCE_DEAD_AFTER_S: "4" }, async (server) => {
    const line = await server.line();
    const alice = await server.online("alice", { line });
    const states = heard<Connection>((on) => alice.on("state", on));
    line.silence();
    await until(() => states.length > 0, 10_000);
    expect(states[0]).toMatchObject({ state: "waiting", reason: { code: 1006, detail: "no answer from the server" } });
    line.mend();
    line.cut();
    await until(() => alice.state === "online");
  }),
  40_000,
);

test(
  "what is over a rate limit waits and is sent in its order",
  () =>
  having({ LIMITS_SENDS_PER_S: "5" }, async (server) => {
    const alice = await server.online("alice");
    await alice.room("lobby").join();
    const written = await Promise.all(Array.from({ length: 12 }, (_, n) => alice.room("lobby").send(n)));
    expect(written.map(({ seq }) => seq)).toEqual(Array.from({ length: 12 }, (_, n) => n + 1));
    const bodies = (await alice.room("lobby").history({ limit: 50 })).map(({ body }) => body);
    expect(bodies).toEqual(Array.from({ length: 12 }, (_, n) => n));
  }),
  40_000,
);
