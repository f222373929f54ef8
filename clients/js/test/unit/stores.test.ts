// The stores without a front end: a subscriber is all that they know of one. clients/react and clients/vue test them further.

import { afterEach, describe, expect, test, vi } from "vitest";
import {
  appStatePage,
  connectionSource,
  createClient,
  hold,
  inboxActions,
  inboxSource,
  lastSeenSource,
  presenceSource,
  receiptsSource,
  roomActions,
  roomSource,
  seenBy,
  type Source,
  typingLine,
  typingSource,
  unreadSource,
} from "../../src/stores/index.js";
import { entry, FakeClient, Later, person, said } from "./fake.js";

afterEach(() => {
  vi.useRealTimers();
});

/** Subscribe, and count the changes. */
function watched<Value>(source: Source<Value>): { changes: number; end: () => void } {
  const seen = { changes: 0, end: () => {} };
  seen.end = source.subscribe(() => (seen.changes += 1));
  return seen;
}

const settled = () => new Promise((resolve) => setTimeout(resolve));

const SOURCES: [string, (client: FakeClient) => Source<unknown>][] = [
  ["connection", ({ it }) => connectionSource(it)],
  ["presence", ({ it }) => presenceSource(it, ["alice"])],
  ["room", ({ it }) => roomSource(it, "lobby")],
  ["typing", ({ it }) => typingSource(it, "lobby")],
  ["receipts", ({ it }) => receiptsSource(it, "lobby")],
  ["unread", ({ it }) => unreadSource(it)],
  ["unread of a room", ({ it }) => unreadSource(it, "lobby")],
  ["inbox", ({ it }) => inboxSource(it)],
];

describe.each(SOURCES)("%s", (_, make) => {
  test("a read starts nothing, a subscriber does, and after the last one nothing is left", async () => {
    const client = new FakeClient();
    const source = make(client);
    expect(source.get()).toEqual(source.empty);
    expect(client.held).toBe(0);
    const [first, second] = [watched(source), watched(make(client))];
    expect(client.held).toBeGreaterThan(0);
    expect(source.get()).toBe(source.get());
    first.end();
    await settled();
    expect(client.held).toBeGreaterThan(0);
    second.end();
    await settled();
    expect(client.held).toBe(0);
  });
});

test("a subscriber that replaces another in the same turn causes no second join", async () => {
  const client = new FakeClient();
  const first = watched(roomSource(client.it, "lobby"));
  first.end();
  const second = watched(roomSource(client.it, "lobby"));
  await settled();
  expect(client.room("lobby").entries).toBe(1);
  second.end();
});

test("a message is outgoing until it is in the room, and refused it stays with its error", async () => {
  const client = new FakeClient();
  const source = roomSource<string>(client.it, "lobby");
  const { send, discard } = roomActions<string>(client.it, "lobby");
  const room = client.room("lobby");
  watched(source);
  room.enter(["alice"]);
  void send("hello");
  expect(source.get().outgoing.map(({ body }) => body)).toEqual(["hello"]);
  const { key, answer } = room.sent[0]!;
  answer.resolve({ id: "m1", seq: 1 });
  room.tell(said(1, "hello", { key }));
  await settled();
  expect(source.get().outgoing).toEqual([]);
  expect(source.get().messages.map(({ body }) => body)).toEqual(["hello"]);
  send("spam").catch(() => {});
  const error = new Error("refused");
  room.sent[1]!.answer.reject(error);
  await settled();
  expect(source.get().outgoing).toEqual([{ key: room.sent[1]!.key, body: "spam", error }]);
  discard(room.sent[1]!.key);
  expect(source.get().outgoing).toEqual([]);
});

test("without a subscriber a message goes to the client's room, and other actions do nothing", async () => {
  const client = new FakeClient();
  const { send, discard, join, loadOlder } = roomActions<string>(client.it, "lobby");
  void send("hello", { key: "mine" });
  expect(client.room("lobby").sent.map(({ key }) => key)).toEqual(["mine"]);
  discard("mine");
  join();
  await loadOlder();
  expect(client.held).toBe(0);
});

test("a mark is in every inbox source of the client, whatever its filter", async () => {
  const client = new FakeClient();
  client.inbox.entries = [entry(1), entry(2)];
  client.welcomed("alice");
  const [all, unread] = [inboxSource(client.it), inboxSource(client.it, { filter: "unread" })];
  watched(all);
  watched(unread);
  await settled();
  expect(unread.get().notifications.map(({ id }) => id)).toEqual(["n1", "n2"]);
  await inboxActions(client.it).markRead("n1");
  expect(unread.get().notifications.map(({ id }) => id)).toEqual(["n2"]);
  expect(all.get().notifications.map(({ read_at }) => read_at !== null)).toEqual([true, false]);
});

test("an ignored refusal of a mark is no unhandled rejection", async () => {
  const client = new FakeClient();
  client.inbox.read = () => Promise.reject(new Error("refused"));
  const unhandled = vi.fn();
  process.on("unhandledRejection", unhandled);
  const marked = inboxActions(client.it).markRead("n1");
  await settled();
  process.off("unhandledRejection", unhandled);
  expect(unhandled).not.toHaveBeenCalled();
  await expect(marked).rejects.toThrow("refused");
});

test("presence is the same map until an entry changes", () => {
  const client = new FakeClient();
  const source = presenceSource(client.it, ["alice", "bob", "alice"]);
  const seen = watched(source);
  expect(client.presence.watches.map(({ users }) => users)).toEqual([["alice", "bob"]]);
  client.presence.tell(person("alice", "online"));
  const before = source.get();
  expect([...before.keys()]).toEqual(["alice"]);
  expect(source.get()).toBe(before);
  client.presence.tell(person("alice", "idle", 2));
  expect(source.get().get("alice")!.state).toBe("idle");
  expect(seen.changes).toBe(2);
});

test("a last-seen text grows older while there is a subscriber", () => {
  vi.useFakeTimers();
  const client = new FakeClient();
  const source = lastSeenSource(client.it, person("bob", "offline", 1, { last_seen: client.time - 5 * 60_000 }));
  const seen = watched(source);
  expect(source.get()).toBe("5 minutes ago");
  for (const text of ["6 minutes ago", "7 minutes ago"]) {
    client.time += 60_000;
    vi.advanceTimersByTime(60_000);
    expect(source.get()).toBe(text);
  }
  expect(seen.changes).toBe(2);
  seen.end();
  expect(vi.getTimerCount()).toBe(0);
});

test("receipts that come during their fetch are kept, and one's own is not among the readers", async () => {
  const client = new FakeClient();
  client.user = "alice";
  const source = receiptsSource(client.it, "lobby");
  const room = client.room("lobby");
  const page = (room.page = new Later());
  watched(source);
  room.enter(["alice", "bob"]);
  room.emit("receipt", { user: "bob", seq: 5 });
  page.resolve({ receipts: [{ user: "bob", seq: 3 }, { user: "alice", seq: 9 }] });
  await settled();
  expect(source.get().receipts).toEqual([{ user: "alice", seq: 9 }, { user: "bob", seq: 5 }]);
  expect(seenBy(client.it, source.get(), 5)).toEqual(["bob"]);
  expect(seenBy(client.it, source.get(), 6)).toEqual([]);
});

test("typing has a text with names, in the words of the app", () => {
  const client = new FakeClient();
  const source = typingSource(client.it, "lobby");
  watched(source);
  client.room("lobby").types("alice", "bob");
  expect(typingLine(source.get())).toBe("alice and bob are typing…");
  expect(typingLine({ typers: [], count: 0 })).toBe("");
});

test("the state of the connection has its user, and connects", () => {
  const client = new FakeClient();
  const source = connectionSource(client.it);
  const seen = watched(source);
  client.welcomed("alice");
  expect(source.get()).toMatchObject({ state: "online", user: "alice" });
  source.get().connect();
  expect([client.connects, seen.changes]).toEqual([1, 1]);
});

test("a client is closed after its last holder, unless another comes in the same turn", async () => {
  const client = new FakeClient();
  hold(client.it)();
  const last = hold(client.it);
  await settled();
  expect(client.closes).toBe(0);
  last();
  await settled();
  expect([client.connects, client.closes]).toEqual([2, 1]);
});

test("a client for a path can be created where there is no page", () => {
  expect(createClient({ url: "/greendot", getToken: () => "token" }).state).toBe("idle");
});

test("an app in the foreground reports activity every minute, and in the background none", () => {
  vi.useFakeTimers();
  const listeners = new Set<(state: string) => void>();
  const appState = {
    currentState: "active",
    addEventListener(_: "change", listener: (state: string) => void) {
      listeners.add(listener);
      return { remove: () => void listeners.delete(listener) };
    },
  };
  const page = appStatePage(appState);
  const counts = { activity: 0, visibility: 0, leave: 0, network: 0 };
  const undo = (["activity", "visibility", "leave", "network"] as const).map((sign) => page.on(sign, () => (counts[sign] += 1)));
  const become = (state: string) => {
    appState.currentState = state;
    for (const listener of [...listeners]) listener(state);
  };
  vi.advanceTimersByTime(120_000);
  expect([page.isVisible(), page.isOnline(), counts]).toEqual([true, true, { activity: 2, visibility: 0, leave: 0, network: 0 }]);
  become("background");
  vi.advanceTimersByTime(120_000);
  expect([page.isVisible(), counts]).toEqual([false, { activity: 2, visibility: 1, leave: 1, network: 0 }]);
  become("active");
  vi.advanceTimersByTime(60_000);
  expect(counts).toEqual({ activity: 3, visibility: 2, leave: 1, network: 0 });
  for (const end of undo) end();
  expect([listeners.size, vi.getTimerCount()]).toEqual([0, 0]);
});
