import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Greendot, GreendotError, RoomMessage, ShownMessage } from "../../src/index.js";
import { memoryStore, showMessages } from "../../src/index.js";
import { GreendotServer, heard, until } from "./greendot.js";

type Said = { text: string };

let server: GreendotServer;
let rooms = 0;
beforeAll(async () => void (server = await GreendotServer.start({ LIMITS_ENABLED: "false" })));
afterEach(() => server.reset());
afterAll(() => server.stop());

/** An open room of the test's own. */
async function room(): Promise<string> {
  const name = `room-${++rooms}`;
  await server.http("PUT", `/v1/rooms/${name}`, { open: true });
  return name;
}

async function listening(client: Greendot, name: string): Promise<number[]> {
  const told: number[] = [];
  client.room(name).on("message", ({ seq }) => told.push(seq));
  await client.room(name).join();
  return told;
}

function upTo(last: number, first = 1): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

test("what one says the other is told, once, and the sender knows it for its own", async () => {
  const name = await room();
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  const told = heard<RoomMessage<Said>>((on) => bob.room<Said>(name).on("message", on));
  const own = heard<RoomMessage<Said>>((on) => alice.room<Said>(name).on("message", on));
  expect(await bob.room(name).join()).toEqual({ room: name, head: 0, unread: 0, present: 1, messages: [] });
  await alice.room(name).join();
  const { id, seq } = await alice.room<Said>(name).send({ text: "hello" }, { key: "mine-1" });
  await until(() => told.length === 1 && own.length === 1);
  expect(told[0]).toMatchObject({ id, seq, user: "alice", name: "Alice", body: { text: "hello" }, ref: null, op: null });
  expect(told[0]!.key).toBeUndefined();
  expect(own[0]!.key).toBe("mine-1");
  await alice.room<Said>(name).edit(seq, { text: "hello!" });
  await alice.room<Said>(name).delete(seq);
  await until(() => told.length === 3);
  expect(told.slice(1).map(({ op, ref }) => [op, ref])).toEqual([["edit", 1], ["delete", 1]]);
  expect((await bob.room(name).history({ limit: 2 })).map((message) => message.seq)).toEqual([2, 3]);
});

test("nothing is missing and nothing comes twice, however often the line is cut", async () => {
  const name = await room();
  const line = await server.line();
  const alice = await server.online("alice", { line });
  const bob = await server.online("bob", { line });
  const told = await listening(bob, name);
  await alice.room(name).join();
  const sending = upTo(60).map((n) => alice.room(name).send(n));
  for (let cuts = 0; cuts < 6; cuts++) {
    await until(() => told.length > cuts * 8);
    line.cut();
  }
  const written = await Promise.all(sending);
  await until(() => told.length >= 60);
  await bob.rooms(); // whatever else was under way has come
  expect(told).toEqual(upTo(60));
  // In the order they were said, too.
  expect(written.map(({ seq }) => seq)).toEqual(upTo(60));
});

test("a join brings the newest page, and the events go on behind it, also after a cut", async () => {
  const name = await room();
  const line = await server.line();
  const alice = await server.online("alice");
  await alice.room(name).join();
  for (const n of upTo(5)) await alice.room(name).send(n);
  const bob = await server.online("bob", { line });
  const told = heard<RoomMessage>((on) => bob.room(name).on("message", on));
  const sending = Promise.all(upTo(20, 6).map((n) => alice.room(name).send(n))); // while bob joins
  const { messages, head } = await bob.room(name).join({ history: 3 });
  expect(messages.map(({ seq }) => seq)).toEqual(upTo(head, head - 2));
  await sending;
  line.cut();
  await alice.room(name).send("after the cut");
  await until(() => told.at(-1)?.seq === 21);
  expect(told.map(({ seq }) => seq)).toEqual(upTo(21, head + 1));
});

test("a room that is joined already brings its newest page, too, and no event twice", async () => {
  const name = await room();
  const alice = await server.online("alice");
  const told = await listening(alice, name);
  for (const n of upTo(4)) await alice.room(name).send(n);
  expect((await alice.room(name).join({ history: 2 })).messages.map(({ seq }) => seq)).toEqual([3, 4]);
  expect((await alice.room(name).join()).messages).toEqual([]);
  await until(() => told.length === 4);
  await alice.rooms();
  expect(told).toEqual(upTo(4));
  expect(() => alice.room(name).join({ history: 1, after: 1 })).toThrow("not both");
});

test("reactions are counted live, also those that were missed", async () => {
  const name = await room();
  const line = await server.line();
  const alice = await server.online("alice");
  const bob = await server.online("bob", { line });
  await alice.room(name).join();
  const { seq } = await alice.room(name).send("hello");
  await alice.room(name).react(seq, "👍");
  let shown = showMessages<unknown>([], (await bob.room(name).join({ history: 10 })).messages, Infinity, "bob");
  bob.room(name).on("message", (message) => (shown = showMessages(shown, [message], Infinity, "bob")));
  const first = await bob.room(name).react(seq, "👍");
  expect(await bob.room(name).react(seq, "👍")).toEqual(first);
  await until(() => shown[0]!.reactions[0]?.count === 2);
  expect(shown[0]!.reactions).toEqual([{ reaction: "👍", count: 2, mine: true }]);
  line.cut();
  await alice.room(name).react(seq, "👍", { on: false });
  await alice.room(name).react(seq, "🎉");
  await until(() => shown[0]!.reactions.length === 2);
  expect(shown[0]!.reactions).toEqual([{ reaction: "👍", count: 1, mine: true }, { reaction: "🎉", count: 1, mine: false }]);
  const fresh = showMessages<unknown>([], await bob.room(name).history(), Infinity, "bob");
  expect(fresh).toEqual(shown.map((message) => ({ ...message, reacted: fresh[0]!.reacted })));
});

test("an event that does not exist is refused with the nearest name", async () => {
  const alice = server.client("alice");
  const on = (of: unknown, type: string) => () => (of as Greendot).on(type as "state", () => {});
  expect(on(alice, "mesage")).toThrow('unknown event "mesage"; did you mean "message"?');
  expect(on(alice.room("lobby"), "room.message")).toThrow('did you mean "message"?');
  expect(on(alice.inbox, "create")).toThrow('did you mean "created"?');
  expect(on(alice.room("lobby"), "x")).toThrow("use one of message, typing, entered,");
});

test("what is said without a connection waits, in its order, and is said once", async () => {
  const name = await room();
  const line = await server.line();
  const alice = await server.online("alice", { line });
  const told = await listening(await server.online("bob"), name);
  await alice.room(name).join();
  line.down();
  await until(() => alice.state === "waiting");
  const sending = upTo(5).map((n) => alice.room(name).send(n, { key: `k${n}` }));
  expect(alice.queued).toBe(5);
  line.mend();
  expect((await Promise.all(sending)).map(({ seq }) => seq)).toEqual(upTo(5));
  expect(alice.queued).toBe(0);
  // The same key again is the same message.
  expect((await alice.room(name).send(3, { key: "k3" })).seq).toBe(3);
  await until(() => told.length === 5);
});

test("more than the queue holds is refused, and what it holds is not harmed", async () => {
  const name = await room();
  const alice = server.client("alice", { queue: { count: 3, bytes: 400 } });
  const sending = upTo(3).map((n) => alice.room(name).send(n));
  await expect(alice.room(name).send(4)).rejects.toMatchObject({ code: "queue_full", retry: true });
  alice.connect();
  await Promise.all([alice.room(name).join(), ...sending]);
  await expect(alice.room(name).send("x".repeat(400))).rejects.toMatchObject({ code: "queue_full" });
  await alice.room(name).send(5);
});

test("a message longer than the server reads is refused, and the connection stays", async () => {
  const name = await room();
  const alice = await server.online("alice");
  await alice.room(name).join();
  const states = heard((on) => alice.on("state", on));
  await expect(alice.room(name).send("ä".repeat(40_000))).rejects.toMatchObject({ code: "too_large", retry: false });
  await alice.room(name).send("short");
  expect(states).toEqual([]);
});

test("closing refuses what waits", async () => {
  const alice = server.client("alice");
  const sending = alice.room("lobby").send("never");
  const joining = alice.room("lobby").join();
  alice.connect();
  alice.close();
  await expect(sending).rejects.toMatchObject({ code: "closed" });
  await expect(joining).rejects.toMatchObject({ code: "closed" });
  await expect(alice.room("lobby").send("later")).rejects.toMatchObject({ code: "closed" });
});

test("more than a join brings is fetched and told, in order", async () => {
  const name = await room();
  const line = await server.line();
  const bob = await server.online("bob", { line });
  const told = await listening(bob, name);
  line.down();
  await until(() => bob.state === "waiting");
  const bodies = upTo(450).map((n) => ({ user: "alice", body: n }));
  for (let at = 0; at < 450; at += 30) {
    await Promise.all(bodies.slice(at, at + 30).map((body) => server.http("POST", `/v1/rooms/${name}/messages`, body)));
  }
  line.mend();
  await until(() => told.length === 450);
  expect(told).toEqual(upTo(450));
});

test("whoever is too far behind is told so and goes on at the head", async () => {
  const name = await room();
  const alice = await server.online("alice", { queue: { count: 2_000 } });
  await alice.room(name).join();
  await Promise.all(upTo(1_010).map((n) => alice.room(name).send(n)));
  const bob = await server.online("bob");
  const gaps = heard((on) => bob.room(name).on("resync", on));
  const told: number[] = [];
  bob.room(name).on("message", ({ seq }) => told.push(seq));
  await bob.room(name).join({ after: 0 });
  expect(gaps).toEqual([{ after: 0, head: 1_010 }]);
  await alice.room(name).send("now");
  await until(() => told.length === 1);
  expect(told).toEqual([1_011]);
});

test("a program that begins again with the same storage is told what it missed", async () => {
  const name = await room();
  const storage = memoryStore();
  const before = await server.online("bob", { storage });
  const told = await listening(before, name);
  const alice = await server.online("alice");
  await alice.room(name).join();
  await alice.room(name).send(1);
  await until(() => told.length === 1);
  before.close();
  await alice.room(name).send(2);
  await alice.room(name).send(3);
  const after = await server.online("bob", { storage });
  expect(await listening(after, name)).toEqual([2, 3]);
  // The same browser, another user: nothing of the one before.
  const carol = await server.online("carol", { storage });
  expect(await listening(carol, name)).toEqual([]);
});

test("unread is counted as the server counts it, on every device", async () => {
  const name = await room();
  const alice = await server.online("alice");
  await alice.room(name).join();
  const [phone, laptop] = [await server.online("bob"), await server.online("bob")];
  await phone.room(name).join();
  await laptop.room(name).join();
  await alice.room(name).send(1);
  await alice.room(name).send(2);
  await until(() => phone.room(name).unread === 2 && laptop.room(name).unread === 2);
  const counts = heard((on) => laptop.room(name).on("unread", on));
  expect(await phone.room(name).read(1)).toBe(1);
  await until(() => laptop.room(name).unread === 1);
  expect(await phone.room(name).read()).toBe(0);
  await until(() => laptop.room(name).unread === 0);
  expect(counts).toEqual([1, 0]);
  expect((await laptop.rooms()).find((entry) => entry.room === name)).toMatchObject({ head: 2, unread: 0 });
});

test("who comes and goes is told, and counted", async () => {
  const name = await room();
  const bob = await server.online("bob");
  await bob.room(name).join();
  const came = heard((on) => bob.room(name).on("entered", on));
  const went = heard((on) => bob.room(name).on("left", on));
  const alice = await server.online("alice");
  await alice.room(name).join();
  await until(() => came.length === 1);
  expect(bob.room(name).count).toBe(2);
  const { profiles, ...page } = await bob.room(name).present();
  expect(page).toEqual({ users: ["alice", "bob"], count: 2 });
  expect(profiles).toEqual({ alice: { name: "Alice" }, bob: { name: "Bob" } });
  alice.room(name).leave();
  await until(() => went.length === 1);
  expect([came, went, bob.room(name).count]).toEqual([[{ room: name, user: "alice", name: "Alice" }], [{ room: name, user: "alice" }], 1]);
});

test("names and info that the app sets are shown to watchers and in the room at once", async () => {
  const name = await room();
  const bob = await server.online("bob");
  await bob.room(name).join();
  const dora = await server.online("dora");
  await dora.room(name).join();
  const seen = heard<unknown>((on) => bob.presence.watch("dora", ({ info }) => on(info)));
  const changed = heard((on) => bob.room(name).on("profile", on));
  await until(() => seen.length === 1);
  const info = { colour: "#06f" };
  await server.http("PUT", "/v1/users/dora/info", { info, name: "Dora D" });
  await until(() => seen.length === 2 && changed.length === 1);
  expect([seen, changed]).toEqual([[undefined, info], [{ room: name, user: "dora", name: "Dora D", info }]]);
  expect((await bob.room(name).present()).profiles).toMatchObject({ dora: { name: "Dora D", info } });
  const told = heard<any>((on) => bob.room(name).on("message", on));
  await dora.room(name).send({ text: "hi" });
  await until(() => told.length === 1);
  expect([told[0].name, told[0].info]).toEqual(["Dora D", info]);
});

test("how far others have read is told and listed, and a hidden reader is in neither", async () => {
  const name = await room();
  await server.http("PUT", `/v1/rooms/${name}`, { receipts: true });
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  for (const client of [alice, bob]) await client.room(name).join();
  const told = heard((on) => bob.room(name).on("receipt", on));
  for (const text of ["one", "two", "three"]) await bob.room<Said>(name).send({ text });
  await alice.room(name).read(2);
  await until(() => told.length === 1);
  expect(told).toEqual([{ room: name, user: "alice", seq: 2 }]);
  await alice.privacy.set({ last_seen: "hidden" });
  await alice.room(name).read(3);
  expect(await alice.room(name).receipts()).toEqual({ receipts: [{ user: "alice", seq: 3 }], count: 1, next: null });
  expect(await bob.room(name).receipts()).toEqual({ receipts: [], count: 0, next: null });
  expect(await bob.room(name).receipts({ seq: 2 })).toEqual({ seq: 2, count: 0 });
  await alice.privacy.set({ last_seen: "shown" });
  expect(await bob.room(name).receipts({ limit: 1 })).toEqual({ receipts: [{ user: "alice", seq: 2 }], count: 1, next: null });
  expect(told.length).toBe(1);
});

test("joins are counted: a room is left with the last leave, and two in one turn are one", async () => {
  const name = await room();
  const bob = await server.online("bob");
  await bob.room(name).join();
  const seen = heard<string>((on) => {
    bob.room(name).on("entered", () => on("entered"));
    bob.room(name).on("left", () => on("left"));
  });
  const alice = (await server.online("alice")).room(name);
  void alice.join();
  alice.leave();
  await alice.join();
  await alice.join();
  alice.leave();
  await bob.rooms();
  expect([alice.joined, seen]).toEqual([true, ["entered"]]);
  alice.leave();
  await until(() => seen.length === 2);
  expect([alice.joined, alice.count]).toEqual([false, null]);
});

test("a room one may not be in refuses the join; one that one is put out of says so", async () => {
  await server.http("PUT", "/v1/rooms/closed-room", { open: false });
  const bob = await server.online("bob");
  const room = bob.room("closed-room");
  await expect(room.join()).rejects.toMatchObject({ code: "not_a_member", retry: false });
  await server.http("PUT", "/v1/rooms/closed-room/members/bob", {});
  await room.join();
  const removed = heard((on) => room.on("removed", on));
  await server.http("DELETE", "/v1/rooms/closed-room/members/bob");
  await until(() => removed.length === 1);
  expect(room.joined).toBe(false);
});

test("messages that the app edits or deletes are shown so, and after a deletion the content is gone for everybody", async () => {
  const name = await room();
  const bob = (await server.online("bob")).room<string>(name);
  let shown: readonly ShownMessage<string>[] = [];
  bob.on("message", (message) => (shown = showMessages(shown, [message])));
  await bob.join();
  for (const text of ["rude", "spam", "fine"]) await bob.send(text);
  await server.http("PATCH", `/v1/rooms/${name}/messages/1`, { body: "***", by: "moderator" });
  await server.http("DELETE", `/v1/rooms/${name}/messages/2`);
  await until(() => bob.head === 5);
  const seen = () => shown.map(({ body, edited, deleted }) => [body, edited, deleted]);
  const expected = [["***", true, false], [null, false, true], ["fine", false, false]];
  expect(seen()).toEqual(expected);
  shown = showMessages<string>([], await bob.history());
  expect(seen()).toEqual(expected);
});

test("a room that the app archives, deletes and makes again", async () => {
  const name = await room();
  const bob = (await server.online("bob")).room<string>(name);
  await bob.join();
  for (const text of ["one", "two", "three"]) await bob.send(text);
  await bob.read();
  const archived = heard<boolean>((on) => bob.on("archived", on));
  await server.http("PUT", `/v1/rooms/${name}`, { archived: true });
  await until(() => archived.length === 1);
  expect([archived, bob.archived]).toEqual([[true], true]);
  await expect(bob.send("late")).rejects.toMatchObject({ code: "forbidden", retry: false });
  const removed = heard((on) => bob.on("removed", on));
  await server.http("DELETE", `/v1/rooms/${name}`);
  await until(() => removed.length === 1);
  expect([removed, bob.joined, bob.head, bob.unread]).toEqual([["room deleted"], false, 0, 0]);
  await expect(bob.join()).rejects.toMatchObject({ code: "not_a_member" });
  let again: unknown = null; // until the job has removed the data
  while (!again) again = await server.http("PUT", `/v1/rooms/${name}`, { open: true }).catch(() => new Promise((over) => setTimeout(over, 100)));
  await bob.join();
  expect([bob.head, bob.archived]).toEqual([0, false]);
  await server.http("POST", `/v1/rooms/${name}/messages`, { user: "app", body: "new" });
  await until(() => bob.unread === 1);
}, 60_000);

test("a user whom the app mutes and bans, and a room in slow mode", async () => {
  const name = await room();
  const bob = (await server.online("bob")).room<string>(name);
  const muted = heard<number | null>((on) => bob.on("muted", on));
  const slowed = heard<number>((on) => bob.on("slow_mode", on));
  await bob.join();
  expect([bob.mutedUntil, bob.slowModeS]).toEqual([null, 0]);
  const end = Date.now() + 60_000;
  await server.http("PUT", `/v1/rooms/${name}/mutes/bob`, { until: end });
  await until(() => muted.length === 1);
  expect([muted, bob.mutedUntil]).toEqual([[end], end]);
  const refused = await bob.send("muted").catch((error: GreendotError) => error);
  expect(refused).toMatchObject({ code: "muted", retry: false });
  expect((refused as GreendotError).retryInMs).toBeGreaterThan(30_000);
  await server.http("DELETE", `/v1/rooms/${name}/mutes/bob`);
  await server.http("PUT", `/v1/rooms/${name}`, { slow_mode_s: 3_600 });
  await until(() => muted.length === 2 && slowed.length === 1);
  expect([bob.mutedUntil, slowed, bob.slowModeS]).toEqual([null, [3_600], 3_600]);
  await bob.send("one");
  await expect(bob.send("two")).rejects.toMatchObject({ code: "slow_mode", retry: false });
  const removed = heard((on) => bob.on("removed", on));
  await server.http("PUT", `/v1/rooms/${name}/bans/bob`);
  await until(() => removed.length === 1);
  expect([removed, bob.joined]).toEqual([["banned by the app"], false]);
  await expect(bob.join()).rejects.toMatchObject({ code: "banned", retryInMs: null });
});

test("a client that was away knows of a mute, of slow mode and of an archived room", async () => {
  const name = await room();
  const line = await server.line();
  const client = await server.online("muted-bob", { line });
  const bob = client.room<string>(name);
  const told: unknown[] = [];
  for (const type of ["muted", "slow_mode", "archived"] as const) bob.on(type, (value) => told.push([type, value]));
  await bob.join();
  line.down();
  await until(() => client.state !== "online");
  const end = Date.now() + 600_000;
  await server.http("PUT", "/v1/mutes/muted-bob", { until: end });
  await server.http("PUT", `/v1/rooms/${name}`, { slow_mode_s: 5, archived: true });
  line.mend();
  client.connect();
  await until(() => told.length === 3);
  expect(told).toEqual([["archived", true], ["slow_mode", 5], ["muted", end]]);
});

test("typing is told, ends with the message, and ends by itself", async () => {
  const name = await room();
  const line = await server.line();
  const [alice, bob] = [await server.online("alice", { line }), await server.online("bob")];
  await Promise.all([alice.room(name).join(), bob.room(name).join()]);
  const frames = heard<{ type: string }>((on) => bob.on("event", on));
  for (let key = 0; key < 20; key++) alice.room(name).typing();
  await until(() => bob.room(name).typers.count === 1);
  expect(bob.room(name).typers).toEqual({ room: name, typers: [{ user: "alice", name: "Alice" }], count: 1 });
  expect(frames.filter(({ type }) => type === "typing.started")).toHaveLength(1);
  await alice.room(name).send("done");
  await until(() => bob.room(name).typers.count === 0);
  // The next one begins too soon after the last start to be let through; it is said as soon as it may be.
  alice.room(name).typing();
  await until(() => bob.room(name).typers.count === 1);
  alice.room(name).typing(false);
  await until(() => bob.room(name).typers.count === 0);
});

test("signals reach the room and a user's devices, and are not kept for later", async () => {
  const name = await room();
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  await Promise.all([alice.room(name).join(), bob.room(name).join()]);
  const here = heard((on) => bob.room<unknown, { x: number }>(name).on("signal", on));
  const all = heard<{ kind: string }>((on) => bob.on("signal", on));
  expect(alice.room<unknown, { x: number }>(name).signal("cursor", { x: 1 }, { key: "cursor" })).toBe(true);
  expect(alice.signal("bob", "wave")).toBe(true);
  await until(() => all.length === 2);
  expect(here).toEqual([{ from: "alice", name: "Alice", kind: "cursor", room: name, body: { x: 1 }, key: "cursor" }]);
  alice.close();
  expect(alice.signal("bob", "wave")).toBe(false);
});
