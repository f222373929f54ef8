import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { GreendotServer, heard, until } from "./greendot.js";

let server: GreendotServer;
beforeAll(async () => void (server = await GreendotServer.start({ AUTH_LEEWAY_S: "0", TYPING_TTL_S: "2.2", TYPING_THROTTLE_S: "0.4" })));
afterEach(() => server.reset());
afterAll(() => server.stop());

test("a client with a token of the dev server comes online and knows who it is", async () => {
  const client = server.client("alice", { getToken: () => server.devToken("alice") });
  expect(client.state).toBe("idle");
  const states = heard<{ state: string }>((on) => client.on("state", on));
  client.connect();
  await until(() => client.state === "online");
  expect(states.map(({ state }) => state)).toEqual(["connecting", "online"]);
  expect(client.user).toBe("alice");
  expect(Math.abs(client.now() - Date.now())).toBeLessThan(1_000);
});

test("closing says bye: others see it at once, and the client can begin again", async () => {
  const bob = await server.online("bob");
  const alice = await server.online("alice");
  const states: string[] = [];
  bob.presence.watch("alice", ({ state }) => states.push(state));
  await until(() => states.length === 1);
  alice.close();
  expect(alice.connection).toMatchObject({ state: "closed", reason: { code: "closed", action: "none", retryInMs: null } });
  await until(() => states.at(-1) === "offline", 2_000);
  alice.connect();
  await until(() => states.at(-1) === "online");
  expect(states).toEqual(["online", "offline", "online"]);
});

test("a socket that is cut comes back to its session, and nobody notices", async () => {
  const line = await server.line();
  const bob = await server.online("bob");
  const alice = await server.online("alice", { line });
  const states: string[] = [];
  bob.presence.watch("alice", ({ state }) => states.push(state));
  await until(() => states.length === 1);
  const session = alice.welcome!.session;
  const connections = heard<{ state: string; reason: any }>((on) => alice.on("state", on));
  line.cut();
  await until(() => connections.at(-1)?.state === "online");
  expect(connections.map(({ state }) => state)).toEqual(["waiting", "connecting", "online"]);
  expect(connections[0]!.reason).toMatchObject({ action: "wait", text: "The connection was lost." });
  expect(alice.welcome).toMatchObject({ session, resumed: true });
  expect(states).toEqual(["online"]);
});

test("a server that is not there is tried again and again", async () => {
  const line = await server.line();
  line.down();
  const client = server.client("alice", { line });
  client.connect();
  await until(() => client.connection.failures >= 3);
  expect(client.reason).toMatchObject({ code: "unreachable", text: "The server cannot be reached." });
  line.mend();
  await until(() => client.state === "online");
});

test("typing does not blink where the server holds a start for less than three seconds", async () => {
  await server.http("PUT", "/v1/rooms/desk", { open: true });
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  const desk = alice.room("desk");
  await Promise.all([desk.join(), bob.room("desk").join()]);
  expect(alice.welcome!.typing).toEqual({ repeat_ms: 1_000, hold_ms: 2_200, throttle_ms: 400 });
  const shown = heard<{ count: number }>((on) => bob.room("desk").on("typing", on));
  const keys = setInterval(() => desk.typing(), 50);
  await new Promise((resolve) => setTimeout(resolve, 4_500)); // a client that repeats every 3 s blinks after 2.2
  clearInterval(keys);
  expect(shown.map(({ count }) => count)).toEqual([1]);
});

test("a token that ends is replaced before it does, without an interruption", async () => {
  const asked: string[] = [];
  const client = await server.online("alice", {
    getToken(why) {
      asked.push(why);
      return server.token("alice", { exp: Date.now() / 1000 + (asked.length === 1 ? 3 : 3600) });
    },
  });
  const states = heard((on) => client.on("state", on));
  await until(() => asked.length === 2);
  await new Promise((resolve) => setTimeout(resolve, 2_500)); // past the end of the first one
  expect(asked).toEqual(["first", "refresh"]);
  expect(states).toEqual([]);
  await client.rooms();
});

test("a token that has ended is asked for again, once", async () => {
  const asked: string[] = [];
  const client = server.client("alice", {
    getToken(why) {
      asked.push(why);
      return server.token("alice", { exp: Date.now() / 1000 + (asked.length === 1 ? -600 : 3600) });
    },
  });
  client.connect();
  await until(() => client.state === "online");
  expect(asked).toEqual(["first", "expired"]);
});

test("a token that is not taken is asked for again, once, then it is over", async () => {
  const asked: string[] = [];
  const client = server.client("alice", { getToken: (why) => (asked.push(why), `${server.token("alice")}x`) });
  client.connect();
  await until(() => client.state === "closed");
  expect(asked).toEqual(["first", "refused"]);
  expect(client.reason).toMatchObject({ code: 4500, action: "sign-in", retryInMs: null });
});

test("nobody signed in closes the client, a getToken that fails makes it wait", async () => {
  const nobody = server.client("alice", { getToken: () => null });
  nobody.connect();
  await until(() => nobody.state === "closed");
  expect(nobody.reason).toMatchObject({ code: "signed_out", action: "sign-in" });

  let fails = true;
  const alice = server.client("alice", {
    getToken: async () => {
      if (fails) throw new Error("503");
      return server.token("alice");
    },
  });
  const errors = heard<{ code: string }>((on) => alice.on("error", on));
  alice.connect();
  await until(() => alice.state === "waiting");
  expect(alice.reason).toMatchObject({ code: "no_token", detail: "getToken failed: 503" });
  expect(errors[0]!.code).toBe("no_token");
  fails = false;
  await until(() => alice.state === "online");
});

test("whoever is revoked is told to sign in, and stays away", async () => {
  const line = await server.line();
  const alice = await server.online("mallory", { line });
  await server.http("POST", "/v1/tokens/revoke", { user: "mallory" });
  await until(() => alice.state === "closed");
  expect(alice.reason).toMatchObject({ code: 4501, action: "sign-in", text: "You were signed out." });
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(line.made).toBe(1);
  // Signed in again, with a token from after the revocation.
  alice.connect();
  await until(() => alice.state === "online");
});

test("a session that is taken over by another page says so, and can be taken back", async () => {
  const first = await server.online("alice");
  const { session } = first.welcome!;
  const second = server.client("alice");
  // What a copied tab does: it knows the session of the other one.
  const { WebSocket } = await import("ws");
  const socket = new WebSocket(`${server.url}/v1/connect`);
  await new Promise((resolve) => socket.once("open", resolve));
  socket.send(JSON.stringify({ type: "hello", token: server.token("alice"), resume: { session, rooms: {} } }));
  await until(() => first.state === "closed");
  expect(first.reason).toMatchObject({ code: 4505, action: "use-here" });
  first.connect();
  await until(() => first.state === "online");
  expect(first.welcome!.resumed).toBe(true);
  socket.close();
  second.close();
});

test("a bad url, device or room is refused where it is given", () => {
  expect(() => server.client("alice", { url: "ftp://example.com" })).toThrow("use a URL like wss://example.com");
  expect(() => server.client("alice", { url: "no url" })).toThrow("use a URL like wss://example.com");
  expect(() => server.client("alice", { device: "my laptop" })).toThrow("not a valid id");
  expect(() => server.client("alice").room("the room")).toThrow("not a valid id");
  expect(() => server.client("alice").presence.watch(["bob", "b b"])).toThrow("not a valid id");
});

test("without a WebSocket anywhere the client says how to give it one", async () => {
  const client = server.client("alice", { webSocket: undefined as any });
  if ("WebSocket" in globalThis) return client.connect();
  expect(() => client.connect()).toThrow("give `webSocket`");
  expect(client.state).toBe("idle");
});
