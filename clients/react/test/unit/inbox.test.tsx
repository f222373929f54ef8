import { GreendotError } from "@greendot/client";
import { describe, expect, test } from "vitest";
import { useInbox, useUnread } from "../../src/index.js";
import { entry, FakeClient, Later } from "../../../js/test/unit/fake.js";
import { hookIn, settle } from "./show.js";

async function withInbox<Value>(use: () => Value, ...entries: ReturnType<typeof entry>[]) {
  const client = new FakeClient();
  client.inbox.entries = entries;
  const hook = hookIn(client, use);
  await settle(() => client.welcomed("alice"));
  return { client, inbox: client.inbox, hook };
}

const ids = ({ notifications }: { notifications: readonly { id: string }[] }) => notifications.map(({ id }) => id);

describe("useInbox", () => {
  test("a mark that fails tells who waits for it, and nobody else", async () => {
    const { inbox, hook } = await withInbox(() => useInbox(), entry(1));
    inbox.read = () => Promise.reject(new GreendotError("closed", "Disconnected."));
    void hook.now.markRead("n1"); // an unhandled rejection fails the whole run
    await settle();
    await expect(hook.now.markRead("n1")).rejects.toMatchObject({ code: "closed" });
    expect(hook.now.notifications[0]!.read_at).toBeNull();
  });

  test("shows the newest page, then what is new, and leaves nothing behind", async () => {
    const { client, inbox, hook } = await withInbox(() => useInbox<{ n: number }>(), entry(1), entry(2));
    expect(ids(hook.now)).toEqual(["n1", "n2"]);
    await settle(() => inbox.emit("created", entry(3)));
    expect(hook.now.notifications.map(({ body }) => body.n)).toEqual([1, 2, 3]);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("a notification that comes again until it is acknowledged is there once", async () => {
    const { inbox, hook } = await withInbox(() => useInbox(), entry(1, { ack: true }));
    await settle(() => inbox.emit("created", entry(1, { ack: true })));
    expect(ids(hook.now)).toEqual(["n1"]);
  });

  test("what is marked here or on another device is so in every list", async () => {
    const use = () => ({ all: useInbox(), unread: useInbox({ filter: "unread" }) });
    const { inbox, hook } = await withInbox(use, entry(1), entry(2), entry(3));
    await settle(() => hook.now.all.markRead("n1"));
    expect(inbox.marks).toEqual([["read", "n1"]]);
    expect(ids(hook.now.unread)).toEqual(["n2", "n3"]);
    expect(hook.now.all.notifications[0]).toMatchObject({ read_at: 1_800_000_000_000, seen_at: 1_800_000_000_000, archived_at: null });
    await settle(() => inbox.emit("updated", { state: "archived", through: 2 }));
    expect(ids(hook.now.all)).toEqual(["n3"]);
    await settle(() => hook.now.all.ack({ through: 3 }));
    expect(hook.now.all.notifications[0]!.acked_at).not.toBeNull();
    expect(ids(hook.now.unread)).toEqual([]);
  });

  test("a mark that is told while a page is on its way holds", async () => {
    const { inbox, hook, client } = await withInbox(() => useInbox(), entry(1));
    inbox.next = new Later();
    await settle(() => client.welcomed("alice"));
    await settle(() => inbox.emit("updated", { state: "read", ids: ["n1"] }));
    await settle(() => inbox.next!.resolve(inbox.page([entry(1)])));
    expect(hook.now.notifications[0]!.read_at).not.toBeNull();
  });

  test("after a return what was archived elsewhere is gone, and what came meanwhile stays", async () => {
    const { inbox, hook, client } = await withInbox(() => useInbox(), entry(1), entry(2));
    inbox.next = new Later();
    await settle(() => client.welcomed("alice"));
    await settle(() => inbox.emit("created", entry(3)));
    await settle(() => inbox.next!.resolve(inbox.page([entry(2)])));
    expect(ids(hook.now)).toEqual(["n2", "n3"]);
  });

  test("one that came while a page was on its way stays, though the page has a later head and not the notification", async () => {
    const { inbox, hook, client } = await withInbox(() => useInbox(), entry(1), entry(2));
    inbox.next = new Later();
    await settle(() => client.welcomed("alice"));
    await settle(() => inbox.emit("created", entry(3)));
    await settle(() => inbox.next!.resolve({ ...inbox.page([entry(1), entry(2)]), head: 3, unread: 3 }));
    expect(ids(hook.now)).toEqual(["n1", "n2", "n3"]);
    inbox.next = new Later(); // the next page decides
    await settle(() => client.welcomed("alice"));
    await settle(() => inbox.next!.resolve({ ...inbox.page([entry(1), entry(2)]), head: 3, unread: 2 }));
    expect(ids(hook.now)).toEqual(["n1", "n2"]);
  });

  test("pages go back to the beginning", async () => {
    const { hook } = await withInbox(() => useInbox({ pageSize: 2 }), entry(1), entry(2), entry(3));
    expect([ids(hook.now), hook.now.hasOlder]).toEqual([["n2", "n3"], true]);
    await settle(() => hook.now.loadOlder());
    expect([ids(hook.now), hook.now.hasOlder]).toEqual([["n1", "n2", "n3"], false]);
  });

  test("what is archived while the archive is looked at appears there", async () => {
    const { inbox, hook } = await withInbox(() => useInbox({ filter: "archived" }));
    inbox.entries = [entry(4, { archived_at: 1 })];
    await settle(() => inbox.emit("updated", { state: "archived", ids: ["n4"] }));
    expect(ids(hook.now)).toEqual(["n4"]);
  });

  test("another user's inbox shows nothing of the one before", async () => {
    const { inbox, hook, client } = await withInbox(() => useInbox(), entry(1), entry(2));
    inbox.next = new Later();
    await settle(() => client.welcomed("bob"));
    expect(ids(hook.now)).toEqual([]);
  });

  test("the badge is live, in the inbox and alone", async () => {
    const { client, inbox, hook } = await withInbox(() => ({ inbox: useInbox(), unread: useUnread() }));
    await settle(() => inbox.emit("badge", { unread: 3, unseen: 1 }));
    expect(hook.now.inbox).toMatchObject({ unread: 3, unseen: 1 });
    expect(hook.now.unread).toBe(3);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });
});
