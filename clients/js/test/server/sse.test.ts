// Networks where WebSockets do not pass: the client goes on over an event stream, with the same session.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Connection, Greendot, GreendotOptions, RoomMessage } from "../../src/index.js";
import { forget } from "../../src/sse.js";
import { BlockingProxy } from "./blocking.js";
import { GreendotServer, heard, until } from "./greendot.js";

let server: GreendotServer;
let proxy: BlockingProxy;
beforeAll(async () => void (server = await GreendotServer.start({ AUTH_LEEWAY_S: "0" })));
beforeEach(async () => {
  proxy = await BlockingProxy.before(() => server.port);
});
afterEach(() => {
  server.reset();
  proxy.close();
  forget();
  vi.restoreAllMocks();
});
afterAll(() => server.stop());

const blocked = (options: Partial<GreendotOptions> = {}) => ({ url: proxy.url, ...options });

/** Let the time pass after which a WebSocket is tried again. */
function later(): void {
  const { now } = Date;
  vi.spyOn(Date, "now").mockImplementation(() => now() + 601_000);
}

/** Cut all connections over the proxy and run `meanwhile` before the client is online again. */
async function cut(client: Greendot, meanwhile: () => Promise<unknown> = async () => {}): Promise<void> {
  const states = heard<Connection>((on) => client.on("state", on));
  proxy.cut();
  await until(() => states.length > 0);
  await meanwhile();
  await until(() => states.at(-1)!.state === "online");
}

test("a client whose upgrades are refused comes online over a stream, and nobody sees a difference", async () => {
  const bob = await server.online("bob");
  const states: string[] = [];
  bob.presence.watch("alice", ({ state }) => states.push(state));
  const alice = await server.online("alice", blocked());
  expect(proxy).toMatchObject({ streams: 1 });
  await until(() => states.at(-1) === "online");
  const [here, there] = [alice.room<string>("lobby"), bob.room<string>("lobby")];
  const [mine, theirs] = [here, there].map((room) => heard<RoomMessage<string>>((on) => room.on("message", on)));
  await Promise.all([here.join(), there.join()]);
  await here.send("over a stream");
  await there.send("over a socket");
  await until(() => mine!.length === 2 && theirs!.length === 2);
  expect(mine!.map(({ body }) => body)).toEqual(["over a stream", "over a socket"]);
  expect(theirs).toEqual(mine!.map((message) => expect.objectContaining({ seq: message.seq, body: message.body })));
  alice.close();
  await until(() => states.at(-1) === "offline", 2_000);
});

test("a network that ignores upgrades is treated alike", async () => {
  proxy.ignores = true;
  const alice = server.client("alice", blocked());
  alice.connect();
  await until(() => alice.state === "online", 20_000);
  expect(proxy.streams).toBe(1);
}, 30_000);

test("the page remembers that WebSockets are blocked, and tries one again later", async () => {
  const alice = await server.online("alice", blocked());
  const { upgrades } = proxy;
  await server.online("bob", blocked());
  await cut(alice);
  expect(proxy.upgrades).toBe(upgrades); // streams only
  proxy.passes = true;
  later();
  const { streams } = proxy;
  await cut(alice);
  expect(proxy.upgrades).toBeGreaterThan(upgrades);
  expect(proxy.streams).toBe(streams);
});

test("a session moves between a stream and a socket, and misses nothing", async () => {
  const bob = await server.online("bob");
  const alice = await server.online("alice", blocked());
  const room = alice.room<string>("design");
  const messages = heard<RoomMessage<string>>((on) => room.on("message", on));
  await Promise.all([room.join(), bob.room("design").join()]);
  const session = alice.welcome!.session;
  for (const passes of [true, false]) {
    proxy.passes = passes;
    later();
    if (!passes) forget(); // what the page knows of this server
    await cut(alice, () => bob.room("design").send(`while away ${passes}`));
    expect(alice.welcome).toMatchObject({ session, resumed: true });
  }
  await until(() => messages.length === 2);
  expect(messages.map(({ body }) => body)).toEqual(["while away true", "while away false"]);
});

test("a command whose answer is lost is sent again and taken once", async () => {
  const alice = await server.online("alice", blocked());
  const room = alice.room<string>("random");
  const messages = heard<RoomMessage<string>>((on) => room.on("message", on));
  await room.join();
  const { posts } = proxy;
  proxy.losing = 2;
  await alice.request("room.send", { room: "random", body: "once" }); // without a key the server would take it twice
  await alice.request("room.send", { room: "random", body: "end" });
  await until(() => messages.length >= 2);
  expect(proxy.posts).toBe(posts + 4);
  expect(messages.map(({ body }) => body)).toEqual(["once", "end"]);
});

test("commands of one turn share a request", async () => {
  const alice = await server.online("alice", blocked());
  await alice.request("heartbeat").catch(() => {});
  const { posts } = proxy;
  await Promise.all(Array.from({ length: 30 }, () => alice.request("room.list")));
  expect(proxy.posts - posts).toBeLessThanOrEqual(2);
});

test("a proxy that holds responses back is asked for padding", async () => {
  proxy.buffer = 4_096;
  const alice = server.client("alice", blocked());
  alice.connect();
  await until(() => alice.state === "online", 20_000);
  expect(await alice.rooms()).not.toEqual([]);
}, 30_000);

test("a token is replaced over a stream, without an interruption", async () => {
  const asked: string[] = [];
  const getToken = (why: string) => {
    asked.push(why);
    return server.token("alice", { exp: Date.now() / 1000 + (asked.length === 1 ? 3 : 3600) });
  };
  const alice = await server.online("alice", blocked({ getToken }));
  const states = heard<Connection>((on) => alice.on("state", on));
  await until(() => asked.length === 2, 5_000);
  await alice.rooms();
  expect(asked).toEqual(["first", "refresh"]);
  expect(states).toEqual([]);
});

test("whoever is revoked is told so over a stream", async () => {
  const alice = await server.online("carol", blocked());
  await server.http("POST", "/v1/tokens/revoke", { user: "carol" });
  await until(() => alice.state === "closed");
  expect(alice.reason).toMatchObject({ code: 4501, action: "sign-in" });
});

test("with `fallback: false` there are no streams", async () => {
  const alice = server.client("alice", blocked({ fallback: false }));
  alice.connect();
  await until(() => alice.connection.failures >= 3);
  expect(alice.reason).toMatchObject({ code: "unreachable" });
  expect(proxy.streams).toBe(0);
});

test("a server that stops, or is killed, is found again over a stream", async () => {
  const own = await GreendotServer.start();
  const between = await BlockingProxy.before(() => own.port);
  try {
    const alice = await own.online("alice", { url: between.url });
    const states = heard<Connection>((on) => alice.on("state", on));
    await alice.room("lobby").join();
    for (const [signal, code] of [["SIGTERM", 4000], ["SIGKILL", 1006]] as const) {
      states.length = 0;
      await own.down(signal);
      await until(() => states.length > 0);
      expect(states[0]).toMatchObject({ state: "waiting", reason: { code } });
      await own.up();
      await until(() => alice.state === "online", 20_000);
      expect((await alice.room("lobby").send(signal)).seq).toBeGreaterThan(0);
    }
  } finally {
    await own.stop();
    between.close();
  }
}, 60_000);
