import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Presence } from "../../src/index.js";
import { WebSocket } from "ws";
import { GreendotServer, heard, until } from "./greendot.js";

let server: GreendotServer;
beforeAll(async () => void (server = await GreendotServer.start({ PRESENCE_IDLE_S: "2", PRESENCE_POLLED: "default/star" })));
afterEach(() => server.reset());
afterAll(() => server.stop());

test("all watches of a turn are one command, counted, and the last undo ends them", async () => {
  const commands: string[] = [];
  const carol = await server.online("carol", { webSocket: spied(commands) });
  commands.length = 0;
  const undos = Array.from({ length: 200 }, (_, n) => carol.presence.watch(`user-${n}`));
  const again = carol.presence.watch(["user-0", "user-1"]);
  await until(() => carol.presence.of("user-199") !== undefined);
  expect(commands).toEqual(["watch"]);
  for (const undo of undos) undo();
  undos[0]!(); // a second time does nothing
  await Promise.resolve(); // the turn is over
  await carol.rooms();
  expect(commands).toEqual(["watch", "unwatch", "room.list"]);
  expect([carol.presence.of("user-0")?.state, carol.presence.of("user-2")]).toEqual(["offline", undefined]);
  again();
  await Promise.resolve();
  await carol.rooms();
  expect(commands.slice(3)).toEqual(["unwatch", "room.list"]);
});

test("watching and giving it up in one turn says nothing", async () => {
  const commands: string[] = [];
  const bob = await server.online("bob", { webSocket: spied(commands) });
  commands.length = 0;
  bob.presence.watch("alice")();
  await bob.rooms();
  expect(commands).toEqual(["room.list"]);
});

test("online, busy with an end, idle, invisible, offline: each as the server says", async () => {
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  const seen: Presence[] = [];
  bob.presence.watch("alice", (entry) => seen.push(entry));
  await until(() => seen.at(-1)?.state === "online");
  const own = await alice.status.set({ status: "busy", until: new Date(Date.now() + 700), text: "writing" });
  expect(own).toMatchObject({ state: "busy", status: "busy", status_text: "writing" });
  await until(() => seen.at(-1)?.state === "busy");
  expect(seen.at(-1)).toMatchObject({ status_text: "writing" });
  await until(() => seen.at(-1)?.state === "online");
  await until(() => seen.at(-1)?.state === "idle");
  alice.active();
  await until(() => seen.at(-1)?.state === "online");
  await alice.status.set({ status: "invisible" });
  await until(() => seen.at(-1)?.state === "offline");
  expect(bob.presence.of("alice")!.last_seen).toBeGreaterThan(Date.now() - 60_000);
  const versions = seen.map(({ version }) => version);
  expect(versions).toEqual([...versions].sort((a, b) => a - b));
});

test("after a return the same people are watched, and what was missed is known", async () => {
  const line = await server.line();
  const alice = await server.online("alice-2");
  const bob = await server.online("bob", { line });
  const states = heard<string>((on) => bob.presence.watch("alice-2", ({ state }) => on(state)));
  await until(() => states.length === 1);
  line.down();
  await until(() => bob.state === "waiting");
  alice.close();
  line.mend();
  await until(() => states.length === 2);
  expect(states).toEqual(["online", "offline"]);
});

test("somebody whom so many watch that changes are not told can be asked for", async () => {
  await server.online("star");
  const bob = await server.online("bob");
  bob.presence.watch("star");
  await until(() => bob.presence.of("star") !== undefined);
  expect(bob.presence.of("star")).toMatchObject({ mode: "poll", recently_active: true });
  const [star, nobody] = await bob.presence.get(["star", "nobody"]);
  expect([star!.state, nobody!.version]).toEqual(["online", 0]);
});

test("what is hidden can be asked for and changed", async () => {
  const alice = await server.online("alice-3");
  expect(await alice.privacy.get()).toEqual({ last_seen: "shown", hide_from: [] });
  expect(await alice.privacy.set({ last_seen: "hidden" })).toEqual({ last_seen: "hidden", hide_from: [] });
});

/** A WebSocket that writes down the types of commands, but the client's own ones. */
function spied(commands: string[]): any {
  return class extends WebSocket {
    override send(text: any) {
      const { type } = JSON.parse(text);
      if (type !== "heartbeat") commands.push(type);
      super.send(text);
    }
  };
}
