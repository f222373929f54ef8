import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Notification } from "../../src/index.js";
import { memoryStore } from "../../src/index.js";
import { GreendotServer, heard, until } from "./greendot.js";

let server: GreendotServer;
beforeAll(async () => void (server = await GreendotServer.start()));
afterEach(() => server.reset());
afterAll(() => server.stop());

async function notify(user: string, ...bodies: unknown[]): Promise<void> {
  await server.http("POST", "/v1/notifications", { notifications: bodies.map((body) => ({ user, kind: "news", body })) });
}

test("notifications come in order, are counted, and marked on every device", async () => {
  const [phone, laptop] = [await server.online("alice"), await server.online("alice")];
  const told = heard<Notification>((on) => phone.inbox.on("created", on));
  const badges = heard((on) => laptop.inbox.on("badge", on));
  const marked = heard((on) => laptop.inbox.on("updated", on));
  await notify("alice", { n: 1 }, { n: 2 });
  await until(() => told.length === 2);
  expect(told.map(({ seq, body }) => [seq, body])).toEqual([[1, { n: 1 }], [2, { n: 2 }]]);
  await until(() => laptop.inbox.unread === 2);
  expect(await phone.inbox.seen({ through: 2 })).toEqual({ unread: 2, unseen: 0 });
  expect(await phone.inbox.read(told[0]!.id)).toEqual({ unread: 1, unseen: 0 });
  await until(() => laptop.inbox.unread === 1 && marked.length === 2);
  expect(marked).toEqual([{ state: "seen", through: 2 }, { state: "read", ids: [told[0]!.id] }]);
  expect(badges.at(-1)).toEqual({ unread: 1, unseen: 0 });
  const page = await laptop.inbox.list<{ n: number }>({ filter: "unread" });
  expect(page.notifications.map(({ body }) => body.n)).toEqual([2]);
  await laptop.inbox.archive([told[0]!.id, told[1]!.id]);
  expect((await laptop.inbox.list()).notifications).toEqual([]);
});

test("what came while the client was away is told after its return, once", async () => {
  const line = await server.line();
  const bob = await server.online("bob", { line });
  const told = heard<Notification>((on) => bob.on("notification", on));
  await notify("bob", 1);
  await until(() => told.length === 1);
  line.down();
  await until(() => bob.state === "waiting");
  const marking = bob.inbox.read({ through: 1 }); // waits
  await notify("bob", 2, 3);
  line.mend();
  await until(() => told.length === 3);
  expect(told.map(({ body }) => body)).toEqual([1, 2, 3]);
  expect((await marking).unread).toBe(2);
});

test("a program that begins again with the same storage is told what it missed", async () => {
  const storage = memoryStore();
  const before = await server.online("carol", { storage });
  const first = heard<Notification>((on) => before.on("notification", on));
  await notify("carol", 1);
  await until(() => first.length === 1);
  before.close();
  await notify("carol", 2);
  const after = server.client("carol", { storage });
  const told = heard<Notification>((on) => after.on("notification", on));
  after.connect();
  await until(() => told.length === 1);
  expect(told[0]!.body).toBe(2);
  await until(() => after.inbox.unread === 2);
});
