// Requests that fail: refusals of a real server, wrong addresses, and a proxy in front of the server that loses things.

import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { GreendotServer, until } from "../../../js/test/server/greendot.js";
import {
  BadAnswer,
  BadKey,
  BadRequest,
  Conflict,
  Forbidden,
  GreendotError,
  InvalidArgument,
  NotFound,
  Problem,
  RateLimited,
  Server,
  ServerError,
  type ServerOptions,
  Unavailable,
  Unreachable,
} from "../../src/index.js";
import { Proxy } from "./proxy.js";

const API_KEY = "an API key for the failures of the server SDK";

let server: GreendotServer;
let proxy: Proxy;
let sdk: Server;
const pages: HttpServer[] = [];

beforeAll(async () => {
  server = await GreendotServer.start({ API_KEY, LIMITS_ROOM_SIGNALS_PER_S: "1" });
  proxy = await Proxy.to(server.port);
  sdk = made();
  await sdk.putRoom("lobby", { open: true });
});
afterEach(() => {
  proxy.next();
  server.reset();
});
afterAll(async () => {
  proxy?.close();
  for (const page of pages) page.close();
  await server?.stop();
});

const made = (options: Partial<ServerOptions> = {}) => new Server({ url: proxy.url, apiKey: API_KEY, ...options });

/** Return the error of a call. */
async function errorOf(call: Promise<unknown>): Promise<GreendotError> {
  return call.then(
    (value) => expect.fail(`the call returned ${JSON.stringify(value)}`),
    (error) => error,
  );
}

// --- refusals of the server ---

describe("refusals", () => {
  const REFUSALS: [string, () => Promise<unknown>, typeof Problem, object][] = [
    ["a wrong key", () => made({ apiKey: "wrong" }).rooms(), BadKey, { status: 401, code: "bad_key", title: "Unauthorized" }],
    ["no key", () => made({ apiKey: "" }).rooms(), BadKey, { status: 401 }],
    ["a missing room", () => sdk.room("none"), NotFound, { status: 404, code: "no_such_room" }],
    ["an unknown setting", () => sdk.putRoom("lobby", { opne: true } as object), BadRequest, { status: 400, code: "bad_field", detail: expect.stringContaining("did you mean `open`") }],
    ["a wrong type", () => sdk.setSlowMode("lobby", -1), BadRequest, { status: 400 }],
    ["no body", () => sdk.send("lobby", undefined, { user: "alice" }), BadRequest, { status: 400 }],
    ["a body above the limit", () => sdk.send("lobby", "x".repeat(70_000), { user: "alice" }), BadRequest, { status: 413 }],
    ["a request above the limit", () => sdk.send("lobby", "x".repeat(2_200_000), { user: "alice" }), BadRequest, { status: 413 }],
    ["an archived room", () => sdk.archiveRoom("old").then(() => sdk.send("old", "late", { user: "alice" })), Forbidden, { status: 403, code: "forbidden" }],
  ];

  test.each(REFUSALS)("%s is refused once", async (_, call, Kind, fields) => {
    const error = await errorOf(call());
    expect(error).toBeInstanceOf(Kind);
    expect(error).toBeInstanceOf(ServerError);
    expect(error).toMatchObject({ name: Kind.name, retryAfter: null, ...fields });
    expect(new Set(proxy.requests).size).toBe(proxy.requests.length); // none was repeated
  });

  test("a rate limit of the server names the wait", async () => {
    const calm = made({ retries: 0 });
    const error = await errorOf(Promise.all(Array.from({ length: 12 }, () => calm.signalRoom("lobby", "ring"))));
    expect(error).toBeInstanceOf(RateLimited);
    expect(error).toMatchObject({ status: 429, code: "rate_limited", retryAfter: expect.any(Number) });
    expect(error.retryAfter).toBeGreaterThan(0);
  });

  test("no error shows the key", async () => {
    const apiKey = "very-secret-key";
    const silent = made({ apiKey, timeoutMs: 50, retries: 0 });
    proxy.next({ status: 503 }, "cut", "silent");
    for (const one of [silent, silent, silent, made({ apiKey })]) {
      const error = await errorOf(one.rooms());
      expect(inspect(error, { depth: 9, showHidden: true }) + JSON.stringify(error) + error.stack).not.toContain(apiKey);
    }
  });
});

// --- retries ---

describe("retries", () => {
  const UNAVAILABLE = { status: 503, headers: { "Retry-After": "0" } };
  const notify = (key: string) => sdk.notify("alice", "news", { key }, { key });
  const count = async (key: string) => (await sdk.inbox("alice", { limit: 300 })).notifications.filter(({ body }) => (body as { key: string }).key === key).length;

  test("an unavailable server is asked again, with the same key", async () => {
    proxy.next(UNAVAILABLE, { status: 502 });
    await sdk.notify("alice", "news", { key: "generated" });
    expect(proxy.requests).toEqual(Array(3).fill("POST /v1/notifications"));
    expect(new Set(proxy.bodies).size).toBe(1);
    expect(await count("generated")).toBe(1);
  });

  test("a lost answer does not cause a second notification", async () => {
    proxy.next("lost", "lost");
    expect((await notify("lost")).new).toBe(false); // it was written by the first attempt
    expect(proxy.requests.length).toBe(3);
    expect(await count("lost")).toBe(1);
  });

  test("a message, an edit and a batch are repeated with their keys", async () => {
    proxy.next("lost", "lost");
    const { seq } = await sdk.send("lobby", "once", { user: "alice" });
    proxy.next("lost");
    expect((await sdk.editMessage("lobby", seq, "twice")).seq).toBe(seq + 1);
    proxy.next("cut");
    expect((await sdk.notifyMany([{ user: "alice", kind: "news", body: { key: "batch" } }]))[0]!.new).toBe(true);
    expect((await sdk.messages("lobby")).length).toBe(2);
    expect(await count("batch")).toBe(1);
  });

  test("a failure that lasts is thrown after the last attempt", async () => {
    proxy.next(UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE);
    const error = await errorOf(notify("failing"));
    expect(error).toBeInstanceOf(Unavailable);
    expect(error).toMatchObject({ status: 503, code: "unavailable", retryAfter: 0 });
    expect(proxy.requests.length).toBe(3);
    proxy.next("cut", "cut");
    expect(await errorOf(made({ retries: 1 }).rooms())).toMatchObject({ name: "Unreachable", code: "unreachable", status: null });
    expect(proxy.requests.length).toBe(2);
  });

  test("a signal is never sent twice, also with a key", async () => {
    const body = { user: "alice", kind: "ring", key: "one" };
    for (const call of [() => sdk.signalUser("alice", "ring"), () => sdk.request("POST /v1/signals", { body })]) {
      for (const fault of ["lost", "cut", UNAVAILABLE] as const) {
        proxy.next(fault);
        expect(await errorOf(call())).toBeInstanceOf(ServerError);
        expect(proxy.requests.length).toBe(1);
      }
    }
    proxy.next({ status: 429, headers: { "Retry-After": "0" } }); // the server did nothing
    await sdk.signalUser("alice", "ring");
    expect(proxy.requests.length).toBe(2);
  });

  test("request() repeats a POST only with a key", async () => {
    const body = { user: "alice", kind: "news", body: { key: "raw" } };
    proxy.next("lost");
    expect(await errorOf(sdk.request("POST /v1/notifications", { body }))).toBeInstanceOf(Unreachable);
    proxy.next("lost");
    await sdk.request("POST /v1/notifications", { body: { ...body, key: "raw" } });
    proxy.next("lost");
    await sdk.request("PUT /v1/rooms/{room}", { path: { room: "lobby" } });
    expect(proxy.requests.length).toBe(2);
    expect(await count("raw")).toBe(2);
  });

  test("the wait that the server asks for is respected", async () => {
    proxy.next({ status: 429, headers: { "Retry-After": "1" } });
    const begun = performance.now();
    await sdk.rooms();
    expect(performance.now() - begun).toBeGreaterThan(990);
  });

  test("a wait above the time limit is the caller's", async () => {
    proxy.next({ status: 429, headers: { "Retry-After": "60" }, body: '{"title":"Too Many Requests","status":429,"detail":"wait","code":"rate_limited"}' });
    const error = await errorOf(sdk.rooms());
    expect(error).toBeInstanceOf(RateLimited);
    expect(error).toMatchObject({ retryAfter: 60, code: "rate_limited", detail: "wait" });
    expect(proxy.requests.length).toBe(1);
  });

  test.each(["Wed, 18 Nov 2026 19:00:00 GMT", "soon", "-1", "1e9", ""])("Retry-After: %s is left to the backoff", async (value) => {
    proxy.next({ status: 503, headers: { "Retry-After": value } });
    expect(await errorOf(made({ retries: 0 }).rooms())).toMatchObject({ retryAfter: null });
  });

  test("a room that is being removed is a conflict, with the wait", async () => {
    proxy.next({ status: 409, headers: { "Retry-After": "5" }, body: "busy" });
    const error = await errorOf(sdk.putRoom("lobby"));
    expect(error).toBeInstanceOf(Conflict);
    expect(error).toMatchObject({ retryAfter: 5, detail: "busy", code: "conflict" });
  });
});

// --- time limits ---

describe("time limits", () => {
  test("an attempt ends after the time limit", async () => {
    proxy.next("silent", "silent");
    const error = await errorOf(made({ timeoutMs: 100, retries: 0 }).rooms());
    expect(error).toBeInstanceOf(Unreachable);
    expect(error.message).toBe(`no answer of ${proxy.url} within 100 ms`);
  });

  test("after the time limit a request is sent again, but no signal", async () => {
    const patient = made({ timeoutMs: 1_000, retries: 5 }); // on a busy machine, the server may also miss the limit
    proxy.next("silent");
    expect((await patient.room("lobby")).room).toBe("lobby");
    expect(proxy.requests.length).toBeGreaterThan(1);
    proxy.next("silent");
    expect(await errorOf(patient.signalUser("alice", "ring"))).toBeInstanceOf(Unreachable);
    expect(proxy.requests.length).toBeLessThan(2);
  });

  test("a signal ends a call that waits for its answer, and one that waits for its next attempt", async () => {
    for (const fault of ["silent", { status: 429, headers: { "Retry-After": "9" } }] as const) {
      proxy.next(fault);
      const stop = new AbortController();
      const call = errorOf(sdk.with({ signal: stop.signal }).rooms());
      await until(() => proxy.requests.length === 1);
      stop.abort(new Error("the visitor has gone"));
      expect((await call).message).toBe("the visitor has gone");
    }
    const call = sdk.with({ signal: AbortSignal.abort(new Error("at once")) }).rooms();
    expect((await errorOf(call)).message).toBe("at once");
  });
});

// --- addresses ---

describe("addresses", () => {
  /** Return the address of a web server that is not Greendot. */
  async function page(status: number, body: string, headers: Record<string, string> = {}): Promise<string> {
    const other = createServer((_, answer) => answer.writeHead(status, headers).end(body));
    pages.push(other);
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  }

  test.each(["", "127.0.0.1:8000", "ws://127.0.0.1:8000", "ftp://example.com", "http://user:password@example.com", "http://example.com/?key=1", "http://", undefined, null, 8000])(
    "%j is refused as an address, without showing it",
    (url: any) => {
      expect(() => made({ url })).toThrow(InvalidArgument);
      expect(() => made({ url })).not.toThrow("password");
    },
  );

  test("a path before /v1 and slashes at the end are kept and removed", () => {
    expect(made({ url: "https://example.com/greendot//" }).url).toBe("https://example.com/greendot");
  });

  test("no server at the address", async () => {
    const closed = createServer();
    await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
    const { port } = closed.address() as AddressInfo;
    await new Promise((resolve) => closed.close(resolve));
    // Also a signal is sent again, because it was certainly not sent.
    const error = await errorOf(made({ url: `http://127.0.0.1:${port}`, retries: 1 }).signalUser("alice", "ring"));
    expect(error).toBeInstanceOf(Unreachable);
    expect(error.message).toBe(`no server answers at http://127.0.0.1:${port} (ECONNREFUSED)`);
    expect((await errorOf(made({ url: "http://server.invalid", retries: 0 }).rooms())).message).toContain("no server answers");
    expect((await errorOf(made({ url: "http://127.0.0.1:1", retries: 0 }).rooms())).message).toContain("(bad port)"); // fetch refuses it
  });

  test("a web site in place of the server", async () => {
    const site = made({ url: await page(200, "<!doctype html><title>Shop</title>") });
    const calls = [site.rooms(), site.notify("alice", "news"), site.removeMember("lobby", "alice"), site.disconnect("x")];
    for (const error of await Promise.all(calls.map(errorOf))) {
      expect(error).toBeInstanceOf(BadAnswer);
      expect(error.message).toContain("check that this is the address of a Greendot server");
    }
    const json = made({ url: await page(200, "{}") });
    expect(await errorOf(json.removeMember("lobby", "alice"))).toBeInstanceOf(BadAnswer);
    const lost = await errorOf(made({ url: await page(404, "<html>not here</html>") }).room("lobby"));
    expect(lost).toBeInstanceOf(NotFound);
    expect(lost.message).toContain("is the address of a Greendot server");
    expect(lost.message).not.toContain("<html>");
  });

  test("a redirect is not followed, because the key is for one server", async () => {
    const error = await errorOf(made({ url: await page(301, "", { Location: `${proxy.url}/v1/rooms` }) }).rooms());
    expect(error).toBeInstanceOf(Problem);
    expect(error).toMatchObject({ status: 301, detail: expect.stringContaining("redirects") });
    expect(proxy.requests).toEqual([]);
  });
});

// --- arguments ---

describe("arguments", () => {
  const IDS = ["", ".", "..", "../x", "a/b", "a b", "a%2fb", "a?b", "ä", "-a", "x".repeat(129), undefined, null, 5, {}, ["a"]];

  test.each(IDS)("the id %j is refused before a request", async (id: any) => {
    const calls: Promise<unknown>[] = [
      sdk.room(id),
      sdk.addMember("lobby", id),
      sdk.info(id),
      sdk.notify(id, "news"),
      sdk.send("lobby", "x", { user: id }),
      sdk.signalRoom(id, "ring"),
      sdk.mute("alice", { room: id }),
      sdk.bans({ room: id }).next(),
      sdk.revokeUser(id),
      sdk.revokeSession(id),
      sdk.disconnect(id),
    ];
    for (const error of await Promise.all(calls.map(errorOf))) expect(error.message).toMatch(/is not a valid id/);
    expect(proxy.requests).toEqual([]);
  });

  const WRONG: [string, () => Promise<unknown>][] = [
    ["a reaction of dots", () => sdk.react("lobby", 1, "..", { user: "alice" })],
    ["an empty reaction", () => sdk.react("lobby", 1, "", { user: "alice" })],
    ["a reaction with a slash", () => sdk.react("lobby", 1, "a/b", { user: "alice" })],
    ["half of a surrogate pair", () => sdk.react("lobby", 1, "\ud83d", { user: "alice" })],
    ["a number that is a text", () => sdk.deleteMessage("lobby", "../1" as any)],
    ["a number with a fraction", () => sdk.editMessage("lobby", 1.5, "x")],
    ["a number that is not known", () => sdk.unreact("lobby", NaN, "x", { user: "alice" })],
    ["a token without its id", () => sdk.revokeToken(undefined as any, { user: "alice" })],
    ["a message without a user", () => sdk.send("lobby", "x", undefined as any)],
    ["a BigInt", () => sdk.notify("alice", "news", { count: 1n })],
    ["a cycle", () => sdk.send("lobby", cycle(), { user: "alice" })],
  ];

  function cycle(): unknown {
    const list: unknown[] = [];
    list.push(list);
    return list;
  }

  test.each(WRONG)("%s is refused before a request", async (_, call) => {
    const error = await errorOf(call());
    expect(error).toBeInstanceOf(InvalidArgument);
    expect(error).toMatchObject({ code: "invalid_argument", status: null, retryAfter: null });
    expect(proxy.requests).toEqual([]);
  });

  test.each([{ apiKey: "key\n" }, { apiKey: " key" }, { apiKey: "kéy" }, { apiKey: 5 }, { timeoutMs: 0 }, { timeoutMs: NaN }, { retries: -1 }])("the option %j is refused", (options: any) => {
    expect(() => made(options)).toThrow(InvalidArgument);
    expect(() => made(options)).not.toThrow(/k[eé]y\n|kéy/);
  });

  test("new Server() without options is refused", () => {
    expect(() => new (Server as any)()).toThrow("new Server({ url, apiKey })");
    expect(() => new (Server as any)("http://127.0.0.1:8000", "key")).toThrow(InvalidArgument);
  });

  test("a reaction with any characters reaches the server", async () => {
    const { seq } = await sdk.send("lobby", "react", { user: "alice" });
    for (const reaction of ["👍🏽", "a?b#c&d", "50%", "+1"]) await sdk.react("lobby", seq, reaction, { user: "bob" });
    const [message] = await sdk.messages("lobby", { after: seq - 1, limit: 1 });
    expect(message!.reactions!.map(({ reaction }) => reaction).sort()).toEqual(["+1", "50%", "a?b#c&d", "👍🏽"].sort());
  });

  test("no users are no request", async () => {
    expect([await sdk.presence([]), await sdk.notifyMany([])]).toEqual([[], []]);
    expect(proxy.requests).toEqual([]);
  });
});
