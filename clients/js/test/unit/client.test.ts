// The client with a server the test plays and a clock the test moves.

import { beforeEach, describe, expect, test, vi } from "vitest";
import { type Connection, Greendot, type GreendotOptions, type Presence, type Store } from "../../src/index.js";
import { FakePage, FakeSocket, ManualClock, settled, tokenUntil } from "./clock.js";

let clock: ManualClock;
let page: FakePage;
beforeEach(() => {
  clock = new ManualClock();
  page = new FakePage();
  FakeSocket.all = [];
});

function made(options: Partial<GreendotOptions> = {}): Greendot {
  return new Greendot({
    url: "ws://example.com",
    getToken: () => tokenUntil(clock.now() + 3_600_000),
    webSocket: FakeSocket,
    fallback: false,
    random: () => 0.5,
    clock,
    page,
    ...options,
  });
}

async function online(options: Partial<GreendotOptions> = {}): Promise<Greendot> {
  const client = made(options);
  client.connect();
  await settled();
  FakeSocket.last.welcome({}, clock.now());
  await settled();
  return client;
}

function states(client: Greendot): Connection[] {
  const told: Connection[] = [];
  client.on("state", (connection) => told.push(connection));
  return told;
}

describe("coming back", () => {
  test("waits longer with each failure, and forgets them after a connection that lasted", async () => {
    const client = await online();
    const told = states(client);
    await clock.pass(6_000);
    FakeSocket.last.end(1006);
    const waits: number[] = [];
    for (let n = 0; n < 8; n++) {
      waits.push(client.reason!.retryInMs!);
      await clock.pass(client.reason!.retryInMs!);
      FakeSocket.last.end(1006);
    }
    expect(waits).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    expect(told[0]).toMatchObject({ state: "waiting", failures: 1, reason: { code: 1006, action: "wait" } });
    expect(told.at(-1)!.reason).toMatchObject({ code: "unreachable" });
    await clock.pass(15_000);
    FakeSocket.last.welcome({}, clock.now());
    await clock.pass(6_000);
    FakeSocket.last.end(4001);
    expect(client.reason!.retryInMs).toBe(250);
  });

  test("a connection that does not last is a failure, too", async () => {
    const client = await online();
    for (let n = 0; n < 3; n++) {
      FakeSocket.last.end(1011);
      await clock.pass(client.reason!.retryInMs!);
      FakeSocket.last.welcome({}, clock.now());
    }
    FakeSocket.last.end(1011);
    expect(client.reason!.retryInMs).toBe(2_000);
  });

  test.each([["drain", 4000], ["overloaded", 4003]])("after %s the server's wish is the least", async (type, code) => {
    const client = await online();
    FakeSocket.last.event(type, { retry_in_ms: 7_000 });
    FakeSocket.last.end(code);
    expect(client.reason).toMatchObject({ code, retryInMs: 7_250 });
    page.tell("visibility"); // a page that is looked at does not come earlier
    page.tell("network");
    await clock.pass(6_999);
    expect(FakeSocket.all).toHaveLength(1);
    await clock.pass(1_000);
    expect(FakeSocket.all).toHaveLength(2);
    FakeSocket.last.end(1006); // the wish was for one time
    expect(client.reason!.retryInMs).toBeLessThan(1_000);
  });

  test("a hello that is refused for now is tried again, one that is refused is not", async () => {
    const client = made();
    client.connect();
    await settled();
    FakeSocket.last.open();
    FakeSocket.last.say({ type: "error", id: 0, code: "unavailable", message: "soon", retry: true, retry_in_ms: 3_000 });
    expect(client.reason).toMatchObject({ retryInMs: 3_250, detail: "soon" });
    await clock.pass(3_250);
    FakeSocket.last.open();
    FakeSocket.last.say({ type: "error", id: 0, code: "bad_field", message: "field `device`", retry: false });
    expect(client.connection).toMatchObject({ state: "closed", reason: { code: "bad_field", action: "reload" } });
  });

  test.each([4500, 4501, 4502, 4503, 4504, 4505, 4999])("%i is the end, until connect() is called", async (code) => {
    const client = await online({ getToken: () => "no-token" });
    FakeSocket.last.end(code, "why");
    await clock.pass(0);
    if (code === 4500) FakeSocket.last.end(code, "why");
    expect(client.connection).toMatchObject({ state: "closed", reason: { code, detail: "why", retryInMs: null } });
    await clock.pass(600_000);
    expect(FakeSocket.all).toHaveLength(code === 4500 ? 2 : 1);
    expect([clock.timers, page.listening]).toEqual([0, 0]);
    client.connect();
    await settled();
    expect(client.state).toBe("connecting");
  });

  test("a session that moved to a lost connection of this client is taken back, once", async () => {
    const client = await online();
    FakeSocket.last.end(1006);
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.open();
    FakeSocket.last.end(1006); // after `hello`, before `welcome`
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.welcome({}, clock.now());
    await clock.pass(29_000);
    FakeSocket.last.end(4505); // the server has executed the lost `hello`
    expect(client.connection).toMatchObject({ state: "waiting", reason: { code: "lost" } });
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.welcome({}, clock.now());
    FakeSocket.last.end(4505); // another window
    expect(client.connection).toMatchObject({ state: "closed", reason: { code: 4505 } });
  });

  test("a server that does not answer the hello is given up after ten seconds", async () => {
    const client = made();
    client.connect();
    await settled();
    FakeSocket.last.open();
    await clock.pass(10_000);
    expect([FakeSocket.last.closed, client.state]).toEqual([true, "waiting"]);
  });

  test("an error before the socket opens ends the attempt, whether a close follows or not", async () => {
    const client = made();
    client.connect();
    await settled();
    const refused = FakeSocket.last;
    refused.fail();
    expect(client.connection).toMatchObject({ state: "waiting", failures: 1, reason: { code: "unreachable" } });
    refused.end(1006); // as browsers and ws say afterwards
    refused.fail();
    expect(client.connection.failures).toBe(1);
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.welcome({}, clock.now());
    expect(client.state).toBe("online");
  });

  test("a socket that reports an error when it is closed is closed once", async () => {
    class Undici extends FakeSocket {
      closes = 0;
      override close(): void {
        this.closes += 1;
        this.fail(); // before its state says that it is closing
        super.close();
      }
    }
    const client = made({ webSocket: Undici });
    client.connect();
    await settled();
    FakeSocket.last.fail();
    expect([client.state, (FakeSocket.last as Undici).closes]).toEqual(["waiting", 1]);
    await clock.pass(client.reason!.retryInMs!);
    client.close();
    expect([client.state, (FakeSocket.last as Undici).closes]).toEqual(["closed", 1]);
  });

  test("after an error of an open socket the close says why; without one it is given up after a second", async () => {
    const client = await online();
    FakeSocket.last.fail();
    expect(client.state).toBe("online");
    FakeSocket.last.end(4001);
    expect(client.reason).toMatchObject({ code: 4001 });
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.welcome({}, clock.now());
    FakeSocket.last.fail();
    await clock.pass(999);
    expect(client.state).toBe("online");
    await clock.pass(1);
    expect([client.state, FakeSocket.last.closed]).toEqual(["waiting", true]);
  });

  test("resume names the session, the rooms and the inbox", async () => {
    const client = await online({ device: "laptop" });
    void client.room("lobby").join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 17));
    FakeSocket.last.event("notification.created", { seq: 1, id: "n", kind: "k", body: 0, created_at: 0, ack: false });
    FakeSocket.last.end(1006);
    await clock.pass(500);
    FakeSocket.last.open();
    expect(FakeSocket.last.command("hello")).toMatchObject({
      device: "laptop",
      supports: { "notification.updated": [1, 2] },
      resume: { session: "s1", rooms: { lobby: 17 }, inbox: 1 },
    });
  });

  test("another user resumes nothing of the one before", async () => {
    let user = "ann";
    const client = await online({ getToken: () => tokenUntil(clock.now() + 3_600_000, user) });
    client.presence.watch("bob");
    await settled();
    FakeSocket.last.answer("watch", { presence: [presence("bob", 5)] });
    expect(client.presence.of("bob")!.version).toBe(5);
    FakeSocket.last.event("inbox.badge", { unread: 3, unseen: 2 });
    const badges: unknown[] = [];
    client.inbox.on("badge", (badge) => badges.push(badge));
    user = "eve";
    client.close();
    client.connect();
    await settled();
    FakeSocket.last.open(); // though the token of the one before would still hold
    expect(FakeSocket.last.command("hello").resume).toBeUndefined();
    expect(client.presence.of("bob")).toBeUndefined();
    expect([badges, client.inbox.unread, client.inbox.unseen]).toEqual([[{ unread: 0, unseen: 0 }], 0, 0]);
  });
});

describe("the page", () => {
  test("without a network the client says so, and goes on when there is one", async () => {
    const client = await online();
    page.online = false;
    FakeSocket.last.end(1006);
    expect(client.connection).toMatchObject({ state: "offline", reason: { code: "offline", action: "check-network" } });
    await clock.pass(2_000);
    page.online = true;
    page.tell("network");
    await settled();
    await clock.pass(0);
    expect([client.state, FakeSocket.all.length]).toEqual(["connecting", 2]);
  });

  test("what the page says of the network may be wrong: it is tried all the same", async () => {
    const client = made();
    page.online = false;
    client.connect();
    await settled();
    FakeSocket.last.end(1006);
    await clock.pass(30_000);
    expect(FakeSocket.all).toHaveLength(2);
    FakeSocket.last.welcome();
    expect(client.state).toBe("online");
  });

  test("the network goes while it waits: offline; the network goes while it is online: asked whether anybody is there", async () => {
    const client = await online();
    page.online = false;
    page.tell("network");
    expect(FakeSocket.last.count("heartbeat")).toBe(1);
    await clock.pass(5_000);
    expect(client.state).toBe("offline");
    page.online = true;
    page.tell("network");
    expect(client.state).toBe("waiting");
    page.online = false;
    page.tell("network");
    expect(client.state).toBe("offline");
  });

  test("the network goes while it waits: the attempt that was planned is put off, and no failure is counted", async () => {
    const client = await online();
    FakeSocket.last.end(1006);
    expect(client.connection).toMatchObject({ state: "waiting", failures: 1 });
    const planned = client.reason!.retryInMs!;
    page.online = false;
    page.tell("network");
    await clock.pass(planned);
    expect(client.connection).toMatchObject({ state: "offline", failures: 1, reason: { code: "offline", retryInMs: 30_000 } });
    expect(FakeSocket.all).toHaveLength(1);
    await clock.pass(30_000);
    expect(FakeSocket.all).toHaveLength(2);
  });

  test("who was told to stay away does not come earlier because its network went and came", async () => {
    const client = await online();
    FakeSocket.last.event("overloaded", { retry_in_ms: 30_000 });
    FakeSocket.last.end(4003);
    for (const isOnline of [false, true]) {
      page.online = isOnline;
      page.tell("network");
    }
    await clock.pass(29_000);
    expect([client.state, FakeSocket.all.length]).toEqual(["waiting", 1]);
    await clock.pass(1_500);
    expect(FakeSocket.all).toHaveLength(2);
  });

  test("a computer that slept finds out at once that the connection is gone", async () => {
    const client = await online();
    clock.sleep(600_000);
    page.tell("visibility");
    expect(client.state).toBe("waiting");
  });

  test("a page that is looked at again does not wait any longer", async () => {
    const client = await online();
    for (let n = 0; n < 8; n++) {
      FakeSocket.last.end(1006);
      await clock.pass(client.reason!.retryInMs!);
    }
    FakeSocket.last.end(1006);
    await clock.pass(2_000);
    const before = FakeSocket.all.length;
    page.tell("visibility");
    await clock.pass(0);
    expect(FakeSocket.all.length).toBe(before + 1);
  });

  test("somebody at the page is told of, unless the page is hidden or it is not wanted", async () => {
    await online();
    page.tell("activity");
    page.tell("activity");
    expect(FakeSocket.last.count("activity")).toBe(1);
    await clock.pass(20_000);
    page.visible = false;
    page.tell("activity");
    expect(FakeSocket.last.count("activity")).toBe(2); // the second of above
    await online({ activity: false });
    page.visible = true;
    const { last } = FakeSocket;
    page.tell("activity");
    expect(last.count("activity")).toBe(0);
  });

  test("close leaves nothing behind: no timer, no listener", async () => {
    const client = await online();
    client.presence.watch("star");
    void client.room("lobby").join();
    await settled();
    FakeSocket.last.answer("watch", { presence: [presence("star", 1, { mode: "poll", until: clock.now() + 5_000 })] });
    FakeSocket.last.answer("room.join", { ...join("lobby", 1), typing: [{ user: "a", name: "A", expires_in_ms: 5_000 }] });
    client.room("lobby").typing();
    client.active();
    client.close();
    await settled();
    expect(FakeSocket.last.sent.at(-1)).toMatchObject({ type: "bye" });
    FakeSocket.last.end(1000);
    expect([clock.timers, page.listening]).toEqual([0, 0]);
  });

  test("whoever says bye lets the server close, and does not wait for it for ever", async () => {
    const client = await online();
    client.close();
    expect([client.state, FakeSocket.last.closed]).toEqual(["closed", false]);
    await clock.pass(2_000);
    expect([FakeSocket.last.closed, clock.timers]).toEqual([true, 0]);
    const other = await online();
    other.close({ bye: false });
    expect([FakeSocket.last.count("bye"), FakeSocket.last.closed]).toEqual([0, true]);
  });
});

describe("tokens", () => {
  test("the one there is is used again while it holds", async () => {
    const getToken = vi.fn(() => tokenUntil(clock.now() + 100_000));
    await online({ getToken });
    FakeSocket.last.end(1006);
    await clock.pass(1_000);
    expect(getToken.mock.calls).toEqual([["first"]]);
  });

  test("a refresh that fails is tried again before the end, and one that is refused is told", async () => {
    const getToken = vi.fn().mockReturnValueOnce(tokenUntil(clock.now() + 100_000)).mockRejectedValueOnce(new Error("503"))
      .mockImplementation(() => tokenUntil(clock.now() + 100_000));
    const client = await online({ getToken });
    const errors: string[] = [];
    client.on("error", ({ code }) => errors.push(code));
    await clock.pass(80_000);
    expect([errors, getToken.mock.calls.length]).toEqual([["no_token"], 3]);
    FakeSocket.last.refuse("token.refresh", { code: "bad_field" });
    await settled();
    expect(errors).toEqual(["no_token", "bad_field"]);
    expect(client.state).toBe("online");
  });

  test("whoever signs out while connected is let go", async () => {
    const getToken = vi.fn().mockReturnValueOnce(tokenUntil(clock.now() + 10_000)).mockReturnValue(null);
    const client = await online({ getToken });
    await clock.pass(9_000);
    expect(client.connection).toMatchObject({ state: "closed", reason: { code: "signed_out", action: "sign-in" } });
    expect(FakeSocket.last.sent.at(-1)).toMatchObject({ type: "bye" });
  });

  test("a getToken that never answers does not keep the client from trying again", async () => {
    const client = made({ getToken: () => new Promise(() => {}) });
    client.connect();
    await clock.pass(30_000);
    expect(client.reason).toMatchObject({ code: "no_token" });
  });

  test("closed while the token is fetched, nothing is opened", async () => {
    let give: (token: string) => void = () => {};
    const client = made({ getToken: () => new Promise((resolve) => (give = resolve)) });
    client.connect();
    await settled();
    client.close();
    give(tokenUntil(clock.now() + 1_000_000));
    await settled();
    expect(FakeSocket.all).toEqual([]);
  });
});

describe("presence", () => {
  test("a late answer does not take back what was told since", async () => {
    const client = await online();
    const seen: number[] = [];
    client.presence.watch("bob", ({ version }) => seen.push(version));
    await settled();
    FakeSocket.last.event("presence.changed", presence("bob", 7));
    FakeSocket.last.answer("watch", { presence: [presence("bob", 6)] });
    FakeSocket.last.event("presence.changed", presence("bob", 5));
    FakeSocket.last.event("presence.changed", presence("eve", 1)); // not watched
    expect(seen).toEqual([7]);
    FakeSocket.last.event("presence.changed", presence("bob", 0, { state: "offline" }));
    FakeSocket.last.event("presence.changed", presence("bob", 3));
    expect(seen).toEqual([7, 0, 3]);
  });

  test("whoever watches later is told what is known, and nobody who has given up is", async () => {
    const client = await online();
    client.presence.watch("bob");
    await settled();
    FakeSocket.last.answer("watch", { presence: [presence("bob", 7)] });
    const [later, never] = [vi.fn(), vi.fn()];
    client.presence.watch("bob", later);
    client.presence.watch("bob", never)();
    expect(later).not.toHaveBeenCalled();
    await settled();
    expect(later).toHaveBeenCalledTimes(1);
    expect(never).not.toHaveBeenCalled();
    expect(FakeSocket.last.count("watch")).toBe(1);
  });

  test("one's own busy ends here when its time is over, though nothing is heard", async () => {
    const client = await online();
    const seen: string[] = [];
    client.presence.watch("me", ({ state }) => seen.push(state));
    await settled();
    const busy = { state: "busy", status: "busy", until: clock.now() + 5_000 } as const;
    FakeSocket.last.answer("watch", { presence: [presence("me", 7, busy)] });
    await clock.pass(5_000);
    expect(seen).toEqual(["busy", "online"]);
  });

  test("those whose changes are not told are asked for every minute, while they are watched and the page is looked at", async () => {
    const client = await online();
    const unwatch = client.presence.watch("star");
    await settled();
    FakeSocket.last.answer("watch", { presence: [presence("star", 7, { mode: "poll" })] });
    await clock.pass(59_999);
    expect(FakeSocket.last.count("presence.get")).toBe(0);
    await clock.pass(1);
    expect(FakeSocket.last.count("presence.get")).toBe(1);
    FakeSocket.last.answer("presence.get", { presence: [presence("star", 8, { mode: "poll" })] });
    expect(client.presence.of("star")!.version).toBe(8);
    page.visible = false;
    await clock.pass(60_000);
    expect(FakeSocket.last.count("presence.get")).toBe(1);
    page.visible = true;
    FakeSocket.last.event("presence.changed", presence("star", 9, { mode: "poll" }));
    await clock.pass(60_000);
    expect(FakeSocket.last.count("presence.get")).toBe(2);
    FakeSocket.last.answer("presence.get", { presence: [presence("star", 10, { mode: "poll" })] });
    unwatch();
    await clock.pass(60_000);
    expect(FakeSocket.last.count("presence.get")).toBe(2);
  });

  test("a thousand people are watched in frames that fit", async () => {
    const client = await online();
    client.presence.watch(Array.from({ length: 1_000 }, (_, n) => `u${n}`));
    await settled();
    expect(FakeSocket.last.sent.filter(({ type }) => type === "watch").map(({ users }) => users.length)).toEqual([400, 400, 200]);
  });

  test("too many are refused aloud, and the rest goes on", async () => {
    const client = await online();
    const errors: string[] = [];
    client.on("error", ({ code }) => errors.push(code));
    client.presence.watch("bob");
    await settled();
    FakeSocket.last.refuse("watch", { code: "too_many" });
    await settled();
    expect(errors).toEqual(["too_many"]);
  });
});

describe("rooms", () => {
  test("a gap is fetched before what came behind it is told", async () => {
    const { client, told } = await inRoom(10);
    message(11);
    message(14);
    expect(told).toEqual([11]);
    FakeSocket.last.answer("room.history", { messages: [said(14)] });
    await settled();
    expect(FakeSocket.last.command("room.history")).toMatchObject({ room: "lobby", after: 11, limit: 300 });
    message(15);
    FakeSocket.last.answer("room.history", { messages: [said(12), said(13), said(14)] });
    await settled();
    expect(told).toEqual([11, 12, 13, 14, 15]);
    expect(client.room("lobby").head).toBe(15);
  });

  test("a resync is answered by fetching, a refused fetch is told and does not stop what follows", async () => {
    const { client, told } = await inRoom(10);
    const errors: string[] = [];
    client.on("error", ({ code }) => errors.push(code));
    FakeSocket.last.event("resync", { scope: "room:lobby" });
    message(13);
    await settled();
    FakeSocket.last.refuse("room.history", { code: "forbidden" });
    await settled();
    expect([told, errors]).toEqual([[13], ["forbidden"]]);
    message(14);
    expect(told).toEqual([13, 14]);
  });

  test("a server that lost its records numbers anew, and what it says is told", async () => {
    const { client, told } = await inRoom(10);
    const gaps: unknown[] = [];
    client.room("lobby").on("resync", (gap) => gaps.push(gap));
    FakeSocket.last.end(1006);
    await clock.pass(500);
    FakeSocket.last.welcome({ rooms: { lobby: { head: 2, recovered: false, truncated: true } } });
    FakeSocket.last.answer("room.join", join("lobby", 2));
    message(3);
    expect([told, gaps]).toEqual([[3], [{ after: 10, head: 2 }]]);
    expect(client.room("lobby").head).toBe(3);
  });

  test("a message that comes before the answer to a read stays unread", async () => {
    const { client } = await inRoom(10);
    const room = client.room("lobby");
    const reading = room.read();
    message(11); // the server counted without it
    FakeSocket.last.answer("room.read", { unread: 0 });
    expect(await reading).toBe(0);
    expect([room.head, room.unread]).toEqual([11, 1]);
  });

  test("rooms may be called like anything objects have", async () => {
    const client = await online();
    for (const name of ["constructor", "__proto__"]) void client.room(name).join();
    await settled();
    for (const command of FakeSocket.last.sent.filter(({ type }) => type === "room.join")) {
      FakeSocket.last.say({ type: "reply", id: command.id, data: join(command.room, 7) });
    }
    FakeSocket.last.end(1006);
    await clock.pass(500);
    FakeSocket.last.welcome(); // which says that it has joined none of them
    expect(JSON.stringify(FakeSocket.last.command("hello").resume.rooms)).toBe('{"constructor":7,"__proto__":7}');
    expect(FakeSocket.last.sent.filter(({ type }) => type === "room.join").map(({ after }) => after)).toEqual([7, 7]);
  });

  test("what comes in one turn with the answer to a join is not lost", async () => {
    const client = await online();
    const told: number[] = [];
    client.room("lobby").on("message", ({ seq }) => told.push(seq));
    void client.room("lobby").join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 4));
    message(5); // before any promise had its turn
    expect(told).toEqual([5]);
  });

  test("a mute ends when its time is over, though nothing is heard", async () => {
    const room = (await online()).room("lobby");
    const told: unknown[] = [];
    room.on("muted", (until) => told.push(until));
    void room.join();
    await settled();
    const end = clock.now() + 10_000;
    FakeSocket.last.answer("room.join", { ...join("lobby", 4), muted_until: end });
    await clock.pass(9_999);
    expect([told, room.mutedUntil]).toEqual([[end], end]);
    await clock.pass(1);
    FakeSocket.last.event("room.changed", { room: "lobby", removed: false, muted_until: null });
    FakeSocket.last.event("room.changed", { room: "lobby", removed: false, muted_until: 0 });
    expect([told, room.mutedUntil]).toEqual([[end, null, Infinity, null], null]);
  });

  test("a mute is unknown after a leave, a removal or a close", async () => {
    const client = await online();
    const room = client.room("lobby");
    const ends: unknown[] = [];
    room.on("muted", (until) => ends.push(until));
    const muted = async (): Promise<void> => {
      void room.join();
      await settled();
      FakeSocket.last.answer("room.join", { ...join("lobby", 4), muted_until: null });
    };
    await muted();
    room.leave();
    expect([ends, room.mutedUntil]).toEqual([[Infinity, null], null]);
    await settled();
    await muted();
    FakeSocket.last.event("room.changed", { room: "lobby", removed: true, reason: "removed" });
    await muted();
    client.close();
    expect([ends, room.mutedUntil]).toEqual([[Infinity, null, Infinity, null, Infinity, null], null]);
  });

  test("a removal resets the number of unread messages, and reports this", async () => {
    const room = (await online()).room("lobby");
    const unread: number[] = [];
    room.on("unread", (count) => unread.push(count));
    void room.join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 4));
    FakeSocket.last.event("room.changed", { room: "lobby", removed: true, reason: "removed" });
    expect([unread.at(-1), room.unread]).toEqual([0, 0]);
  });

  test("a leave and a join in one turn send no leave, and the join is answered", async () => {
    const room = (await online()).room("lobby");
    void room.join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 4));
    room.leave();
    const joining = room.join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 4));
    expect([await joining, room.joined]).toMatchObject([{ head: 4 }, true]);
    expect([FakeSocket.last.count("room.join"), FakeSocket.last.count("room.leave")]).toEqual([2, 0]);
  });

  test("a join that waits for a connection can be given up, and one that is refused can be tried again", async () => {
    const client = made();
    const joining = client.room("lobby").join();
    client.room("lobby").leave();
    await expect(joining).rejects.toMatchObject({ code: "closed" });
    client.connect();
    await settled();
    FakeSocket.last.welcome();
    await settled();
    expect(FakeSocket.last.count("room.join")).toBe(0);
    const refused = client.room("lobby").join();
    await settled();
    FakeSocket.last.refuse("room.join", { code: "not_a_member" });
    await expect(refused).rejects.toMatchObject({ code: "not_a_member" });
    const again = client.room("lobby").join();
    await settled();
    FakeSocket.last.answer("room.join", join("lobby", 4));
    expect(await again).toEqual({ room: "lobby", head: 4, unread: 1, present: 2, messages: [] });
  });

  test("a send that must wait is not overtaken; another room does not wait for it", async () => {
    const { client } = await inRoom(0);
    const [first, second] = [client.room("lobby").send(1), client.room("lobby").send(2)];
    const other = client.room("other").send(3);
    await settled();
    expect(FakeSocket.last.sent.filter(({ type }) => type === "room.send").map(({ body }) => body)).toEqual([1, 3]);
    FakeSocket.last.answer("room.send", { id: "c", seq: 1 });
    expect((await other).id).toBe("c");
    const { id } = FakeSocket.last.sent.find(({ type, body }) => type === "room.send" && body === 1);
    FakeSocket.last.say({ type: "error", id, code: "rate_limited", message: "slow", retry: true, retry_in_ms: 400 });
    await clock.pass(400);
    expect(FakeSocket.last.command("room.send").body).toBe(1);
    FakeSocket.last.answer("room.send", { id: "a", seq: 1 });
    await settled();
    FakeSocket.last.answer("room.send", { id: "b", seq: 2 });
    expect([await first, await second]).toEqual([{ id: "a", seq: 1 }, { id: "b", seq: 2 }]);
  });

  test("what fails on the server is tried five times, then given up", async () => {
    const { client } = await inRoom(0);
    const sending = client.room("lobby").send("poison");
    sending.catch(() => {});
    for (let n = 0; n < 5; n++) {
      await settled();
      FakeSocket.last.refuse("room.send", { code: "internal", retry: true });
      await clock.pass(1_000);
    }
    await expect(sending).rejects.toMatchObject({ code: "internal" });
    expect(FakeSocket.last.count("room.send")).toBe(5);
  });

  test("what is asked for before there is a connection, or when it is lost, is answered by the next one", async () => {
    const client = made();
    const asked = [client.rooms(), client.inbox.list(), client.room("lobby").history(), client.presence.get("bob")];
    await expect(client.request("room.list")).rejects.toMatchObject({ code: "disconnected", retry: true });
    client.connect();
    await settled();
    FakeSocket.last.welcome();
    await settled();
    FakeSocket.last.end(1006);
    await clock.pass(500);
    const { last } = FakeSocket;
    last.welcome();
    await settled();
    last.answer("room.list", { rooms: [] });
    last.answer("inbox.list", { notifications: [], head: 0, unread: 0, unseen: 0 });
    last.answer("room.history", { messages: [said(1)] });
    last.answer("presence.get", { presence: [presence("bob", 1)] });
    expect(await Promise.all(asked)).toMatchObject([[], { head: 0 }, [{ seq: 1 }], [{ user: "bob" }]]);
  });

  test("what is changed after send() is not what is sent", async () => {
    const client = made();
    const body = { text: "as it was" };
    const sending = client.room<{ text: string }>("lobby").send(body);
    body.text = "later";
    client.connect();
    await settled();
    FakeSocket.last.welcome();
    await settled();
    expect(FakeSocket.last.command("room.send").body).toEqual({ text: "as it was" });
    client.close();
    await expect(sending).rejects.toMatchObject({ code: "closed" });
  });
});

describe("the inbox", () => {
  const notice = (seq: number, ack = false) => ({ seq, id: `n${seq}`, kind: "k", body: seq, created_at: 0, ack });

  test("one that nobody has acknowledged comes again, and is told once", async () => {
    const client = made();
    const told: number[] = [];
    client.inbox.on("created", ({ seq }) => told.push(seq));
    client.connect();
    await settled();
    FakeSocket.last.welcome();
    const { last } = FakeSocket;
    last.event("notification.created", notice(1, true));
    last.event("notification.created", notice(1, true));
    last.event("notification.created", notice(2));
    expect(told).toEqual([1, 2]);
  });

  test("one from before this program began is told out of its turn", async () => {
    const client = made();
    const told: number[] = [];
    client.inbox.on("created", ({ seq }) => told.push(seq));
    client.connect();
    await settled();
    const { last } = FakeSocket;
    last.welcome();
    last.event("notification.created", notice(3, true)); // the inbox stands at 0: three are new, of which two are missing
    expect(told).toEqual([]);
    last.answer("inbox.list", { notifications: [], head: 3, unread: 3, unseen: 3 });
    await settled();
    last.answer("inbox.list", { notifications: [notice(1), notice(2), notice(3, true)], head: 3, unread: 3, unseen: 3 });
    await settled();
    expect(told).toEqual([1, 2, 3]);
    expect(client.inbox.unread).toBe(3);
  });

  test("a head older than a notification that came before it takes nothing back", async () => {
    const client = made();
    const told: number[] = [];
    const gaps: unknown[] = [];
    client.inbox.on("created", ({ seq }) => told.push(seq));
    client.inbox.on("resync", (gap) => gaps.push(gap));
    client.connect();
    await settled();
    const { last } = FakeSocket;
    last.welcome({}, clock.now(), null);
    last.event("notification.created", notice(6)); // written after the server read the head
    last.answer("inbox.list", { notifications: [notice(5)], head: 5, unread: 5, unseen: 5 });
    await settled();
    last.event("notification.created", notice(7));
    await settled();
    expect([told, gaps]).toEqual([[6, 7], []]);
    // After a return the head is behind what was told before it was asked for: the server has lost notifications.
    last.end(1011);
    await clock.pass(client.reason!.retryInMs!);
    FakeSocket.last.welcome({}, clock.now(), { notifications: [notice(5)], head: 5, unread: 5, unseen: 5 });
    await settled();
    expect(gaps).toEqual([{ after: 7, head: 5 }]);
  });
});

describe("storage", () => {
  test("one that fails is told of, and everything else goes on", async () => {
    const storage: Store = {
      get: () => Promise.reject(new Error("quota")),
      set() {
        throw new Error("full");
      },
    };
    const client = made({ storage });
    const errors: string[] = [];
    client.on("error", ({ message }) => errors.push(message));
    client.connect();
    await settled();
    FakeSocket.last.welcome();
    expect(client.state).toBe("online");
    expect(errors).toContain("storage failed: quota");
  });

  test("cursors are kept a moment later, and at once when the page goes", async () => {
    const kept = new Map<string, string>();
    const storage: Store = { get: (key) => kept.get(key) ?? null, set: (key, value) => void kept.set(key, value) };
    const { client } = await inRoom(10, { storage });
    await clock.pass(250);
    message(11);
    expect(JSON.parse(kept.get("cursors:/me")!).rooms).toEqual({ lobby: 10 });
    page.tell("leave");
    expect(JSON.parse(kept.get("cursors:/me")!).rooms).toEqual({ lobby: 11 });
    client.room("lobby").leave();
    await clock.pass(250);
    expect(JSON.parse(kept.get("cursors:/me")!)).toEqual({ rooms: {}, inbox: 0 });
  });

  test("nonsense in it is as good as nothing", async () => {
    for (const nonsense of ["{", "[]", "null", '{"rooms": {"lobby": "x"}, "inbox": -0.5}']) {
      const client = made({ storage: { get: (key) => (key === "device" ? "d" : nonsense), set: () => {} } });
      client.connect();
      await settled();
      FakeSocket.last.welcome();
      expect(FakeSocket.last.command("hello").resume).toBeUndefined();
      client.close();
    }
  });
});

test("a refused signal fails its promise if a reply was asked for", async () => {
  const client = await online();
  expect(client.signal("bob", "wave")).toBe(true);
  expect(FakeSocket.last.sent.at(-1)).not.toHaveProperty("id");
  const room = client.room("lobby");
  for (const send of [() => client.signal("bob", "ping", 1, { reply: true }), () => room.signal("ping", 1, { reply: true })]) {
    const sent = expect(send()).rejects.toMatchObject({ code: "forbidden" });
    await settled();
    FakeSocket.last.refuse("signal.send", { code: "forbidden" });
    await sent;
  }
});

test("a listener that throws is told of, and one of errors that throws does not go on for ever", async () => {
  const logged = vi.spyOn(console, "error").mockImplementation(() => {});
  const client = await online();
  const errors: string[] = [];
  client.on("error", ({ code }) => errors.push(code));
  client.on("error", () => {
    throw new Error("again");
  });
  client.on("signal", () => {
    throw new Error("mine");
  });
  FakeSocket.last.event("signal", { from: "bob", name: null, kind: "wave" });
  expect(errors).toEqual(["listener"]);
  expect(logged).toHaveBeenCalledTimes(2);
  logged.mockRestore();
});

test("frames that cannot be read, and events of the future, harm nothing", async () => {
  const client = await online();
  for (const odd of ["", "x", "null", "7", '"s"', "[]", "{}", '{"type":"reply","id":99}', '{"type":"of.tomorrow","data":{"room":"lobby"}}']) {
    FakeSocket.last.onmessage!({ data: odd });
  }
  expect(client.state).toBe("online");
});

function presence(user: string, version: number, more: Partial<Presence> = {}): Presence {
  return { user, name: user, state: "online", since: 1, last_seen: null, version, status_text: null, mode: "live", ...more };
}

function join(room: string, head: number): object {
  return { room, head, messages: [], recovered: false, truncated: false, typing: [], typing_count: 0, present: 2, unread: 1 };
}

function said(seq: number): object {
  return { room: "lobby", seq, id: `m${seq}`, user: "bob", name: "Bob", body: seq, at: 0, ref: null, op: null };
}

function message(seq: number): void {
  FakeSocket.last.event("room.message", said(seq));
}

async function inRoom(head: number, options: Partial<GreendotOptions> = {}): Promise<{ client: Greendot; told: number[] }> {
  const client = await online(options);
  const told: number[] = [];
  client.room("lobby").on("message", ({ seq }) => told.push(seq));
  void client.room("lobby").join();
  await settled();
  FakeSocket.last.answer("room.join", join("lobby", head));
  await settled();
  return { client, told };
}
