import { GreendotError } from "@greendot/client";
import { describe, expect, test } from "vitest";
import { useReceipts, useRoom, useTyping, useUnread } from "../../src/index.js";
import { FakeClient, Later, said } from "../../../js/test/unit/fake.js";
import { hookIn, settle, show } from "./show.js";

const texts = (room: { messages: readonly { body: unknown }[] }) => room.messages.map(({ body }) => body);

async function inLobby(use = () => useRoom<string>("lobby", { pageSize: 3 }), records = [1, 2, 3, 4, 5]) {
  const client = new FakeClient();
  const lobby = client.room("lobby");
  lobby.records = records.map((seq) => said(seq, `m${seq}`));
  const hook = hookIn(client, use);
  await settle(() => lobby.enter(["alice", "bob"]));
  return { client, lobby, hook };
}

describe("useRoom", () => {
  test("a mark that fails tells who waits for it, and nobody else", async () => {
    const { lobby, hook } = await inLobby();
    lobby.read = () => Promise.reject(new GreendotError("closed", "Disconnected."));
    void hook.now.markRead(); // an unhandled rejection fails the whole run
    await settle();
    await expect(hook.now.markRead()).rejects.toMatchObject({ code: "closed" });
  });

  test("joins once in StrictMode, and leaves when it is unmounted", async () => {
    const { client, lobby, hook } = await inLobby();
    expect([lobby.joins, lobby.entries]).toEqual([1, 1]);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("shows the newest page, then what is said; two components share one room", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [said(1, "one")];
    const Room = () => <ul>{useRoom<string>("lobby").messages.map(({ seq, body }) => <li key={seq}>{body}</li>)}</ul>;
    const { container, unmount } = show(client, <><Room /><Room /></>);
    await settle(() => lobby.enter());
    await settle(() => lobby.tell(said(2, "two")));
    expect(container.textContent).toBe("onetwoonetwo");
    expect([lobby.joins, lobby.asked.length]).toEqual([1, 1]);
    unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("counts reactions as they come, also those that came before a page that was read before them", async () => {
    const { client, lobby, hook } = await inLobby();
    client.user = "ann";
    const react = (seq: number, ref: number, user: string, op: "react" | "unreact" = "react") =>
      settle(() => lobby.tell(said(seq, { reaction: "+" }, { ref, user, op })));
    const counts = () => hook.now.messages.map(({ seq, reactions }) => [seq, ...reactions.map(({ count, mine }) => `${count}${mine ? "!" : ""}`)]);
    await react(6, 5, "ann");
    await react(7, 5, "bob");
    await react(8, 1, "bob"); // of a message that is not shown yet
    expect(counts()).toEqual([[3], [4], [5, "2!"]]);
    lobby.next = new Later();
    void hook.now.loadOlder();
    const counted = { reactions: [{ reaction: "+", count: 4, mine: false }], reacted: 7 };
    await settle(() => lobby.next!.resolve([said(1, "m1", counted), said(2, "m2")]));
    expect(counts()).toEqual([[1, "5"], [2], [3], [4], [5, "2!"]]);
    await react(9, 5, "ann", "unreact");
    expect(counts().at(-1)).toEqual([5, "1"]);
    void hook.now.react(5, "+");
    void hook.now.react(5, "+", false);
    expect(lobby.reacted).toEqual([[5, "+", true], [5, "+", false]]);
  });

  test("with `history` the newest page comes with the join, and older ones are fetched", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [1, 2, 3, 4].map((seq) => said(seq, `m${seq}`));
    const hook = hookIn(client, () => useRoom<string>("lobby", { history: 2 }));
    await settle(() => lobby.enter([], lobby.records.slice(-2)));
    expect([texts(hook.now), hook.now.hasOlder, hook.now.loading]).toEqual([["m3", "m4"], true, false]);
    expect([lobby.pages, lobby.asked]).toEqual([[2], []]);
    await settle(() => lobby.tell(said(5, "m5")));
    await settle(() => hook.now.loadOlder());
    expect(texts(hook.now)).toEqual(["m1", "m2", "m3", "m4", "m5"]);
    await settle(() => lobby.enter()); // a reconnect
    expect([texts(hook.now).length, lobby.asked.length]).toEqual([5, 1]);
  });

  test("a server that does not know `history` is asked for the page", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [said(1, "one")];
    const hook = hookIn(client, () => useRoom<string>("lobby", { history: 2 }));
    await settle(() => lobby.enter());
    expect([texts(hook.now), lobby.asked.length]).toEqual([["one"], 1]);
  });

  test("with `history`, a room that another component has joined is joined again", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [said(1, "one")];
    hookIn(client, () => useUnread("lobby"));
    await settle(() => lobby.enter());
    const hook = hookIn(client, () => useRoom<string>("lobby", { history: 2 }));
    expect(lobby.pages).toEqual([undefined, 2]);
    await settle(() => lobby.enter([], lobby.records));
    expect([texts(hook.now), lobby.asked]).toEqual([["one"], []]);
  });

  test("one component in place of another keeps the room and what is known of it", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [said(1, "one")];
    const Room = () => <p>{texts(useRoom("lobby")).join()}</p>;
    const { container, again } = show(client, <div key="a"><Room /></div>);
    await settle(() => lobby.enter());
    again(<section key="b"><Room /></section>);
    expect(container.textContent).toBe("one");
    await settle();
    expect([lobby.entries, lobby.asked.length]).toEqual([1, 1]);
  });

  test("another room is joined in place of the first", async () => {
    const client = new FakeClient();
    const Room = ({ name }: { name: string }) => <p>{texts(useRoom(name)).join()}</p>;
    client.room("lobby").records = [said(1, "in the lobby")];
    const { container, again } = show(client, <Room name="lobby" />);
    await settle(() => client.room("lobby").enter());
    again(<Room name="hall" />);
    expect(container.textContent).toBe("");
    await settle();
    expect([client.room("lobby").joins, client.room("hall").joins]).toEqual([0, 1]);
  });

  test("pages go back to the beginning, and say when they are there", async () => {
    const { lobby, hook } = await inLobby();
    expect(texts(hook.now)).toEqual(["m3", "m4", "m5"]);
    expect(hook.now.hasOlder).toBe(true);
    await settle(() => hook.now.loadOlder());
    expect(texts(hook.now)).toEqual(["m1", "m2", "m3", "m4", "m5"]);
    expect(hook.now.hasOlder).toBe(false);
    const asked = lobby.asked.length;
    await settle(() => hook.now.loadOlder());
    expect(lobby.asked).toHaveLength(asked);
  });

  test("where old messages are not kept any more, an empty page is the last", async () => {
    const { hook } = await inLobby(undefined, [7, 8, 9]);
    expect(hook.now.hasOlder).toBe(true);
    await settle(() => hook.now.loadOlder());
    expect(hook.now.hasOlder).toBe(false);
    expect(texts(hook.now)).toEqual(["m7", "m8", "m9"]);
  });

  test("an edit of a message that is fetched later is not lost", async () => {
    const { lobby, hook } = await inLobby();
    await settle(() => lobby.tell(said(6, "better", { ref: 1, op: "edit" })));
    expect(texts(hook.now)).toEqual(["m3", "m4", "m5"]);
    await settle(() => hook.now.loadOlder());
    expect(texts(hook.now)[0]).toBe("better");
    expect(hook.now.messages[0]!.edited).toBe(true);
  });

  test("an edit that is told while the page is on its way counts", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.next = new Later();
    const hook = hookIn(client, () => useRoom<string>("lobby"));
    await settle(() => lobby.enter());
    await settle(() => lobby.tell(said(2, "better", { ref: 1, op: "edit" })));
    expect(hook.now.loading).toBe(true);
    await settle(() => lobby.next!.resolve([said(1, "m1")]));
    expect(texts(hook.now)).toEqual(["better"]);
  });

  test("keeps the newest only, and fetches the others again", async () => {
    const { lobby, hook } = await inLobby(() => useRoom<string>("lobby", { pageSize: 3, keep: 4 }), [1, 2, 3]);
    expect(hook.now.hasOlder).toBe(false);
    await settle(() => [4, 5].forEach((seq) => lobby.tell(said(seq, `m${seq}`))));
    expect(texts(hook.now)).toEqual(["m2", "m3", "m4", "m5"]);
    expect(hook.now.hasOlder).toBe(true);
    await settle(() => hook.now.loadOlder());
    expect(texts(hook.now)).toEqual(["m1", "m2", "m3", "m4", "m5"]);
  });

  test("after too long away what is shown is replaced, and not shown empty in between", async () => {
    const { lobby, hook } = await inLobby();
    lobby.next = new Later();
    await settle(() => lobby.emit("resync", { after: 5, head: 900 }));
    await settle(() => lobby.tell(said(901, "m901")));
    expect(texts(hook.now)).toEqual(["m3", "m4", "m5"]);
    await settle(() => lobby.next!.resolve([said(899, "m899"), said(900, "m900")]));
    expect(texts(hook.now)).toEqual(["m899", "m900", "m901"]);
    expect(hook.now.hasOlder).toBe(true);
  });

  test("a page that was lost with the connection is fetched after the return", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.next = new Later();
    const hook = hookIn(client, () => useRoom<string>("lobby"));
    await settle(() => lobby.enter());
    await settle(() => lobby.next!.reject(new GreendotError("disconnected", "lost")));
    expect([hook.now.loading, hook.now.error]).toEqual([false, null]);
    lobby.next = null;
    lobby.records = [said(1, "one")];
    await settle(() => lobby.enter());
    expect(texts(hook.now)).toEqual(["one"]);
  });

  test("a page that is refused says why; what is said is shown all the same, and it can be tried again", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.next = new Later();
    const hook = hookIn(client, () => useRoom<string>("lobby"));
    await settle(() => lobby.enter());
    await settle(() => lobby.next!.reject(new GreendotError("internal", "failed")));
    expect(hook.now.error!.code).toBe("internal");
    lobby.next = null;
    lobby.records = [said(1, "one")];
    await settle(() => lobby.tell(said(2, "two")));
    expect(texts(hook.now)).toEqual(["two"]);
    await settle(() => hook.now.loadOlder());
    expect([texts(hook.now), hook.now.error]).toEqual([["one", "two"], null]);
  });

  test("what is sent is shown until it is in the room, whichever is heard of first", async () => {
    const { lobby, hook } = await inLobby();
    await settle(() => void hook.now.send("answered first"));
    expect(hook.now.outgoing.map(({ body }) => body)).toEqual(["answered first"]);
    await settle(() => lobby.sent[0]!.answer.resolve({ id: "m6", seq: 6 }));
    expect(hook.now.outgoing).toHaveLength(1);
    await settle(() => lobby.tell(said(6, "answered first")));
    expect(hook.now.outgoing).toEqual([]);

    await settle(() => void hook.now.send("told first", { key: "k" }));
    await settle(() => lobby.tell(said(7, "told first", { key: "k" })));
    expect(hook.now.outgoing).toEqual([]);
    await settle(() => lobby.sent[1]!.answer.resolve({ id: "m7", seq: 7 }));
    expect(hook.now.outgoing).toEqual([]);
    expect(texts(hook.now).slice(-2)).toEqual(["answered first", "told first"]);
  });

  test("what is refused stays with its error, is tried again under its key, or thrown away", async () => {
    const { lobby, hook } = await inLobby();
    await settle(() => void hook.now.send("hello"));
    await settle(() => lobby.sent[0]!.answer.reject(new GreendotError("forbidden", "no")));
    const [refused] = hook.now.outgoing;
    expect(refused!.error!.code).toBe("forbidden");
    await settle(() => void hook.now.send(refused!.body, { key: refused!.key }));
    expect(hook.now.outgoing.map(({ error }) => error)).toEqual([null]);
    expect(lobby.sent[1]!.key).toBe(lobby.sent[0]!.key);
    await settle(() => hook.now.discard(refused!.key));
    expect(hook.now.outgoing).toEqual([]);
  });

  test("who comes and goes is in the list; above a hundred there is only the count", async () => {
    const { lobby, hook } = await inLobby();
    expect(hook.now.present).toEqual(["alice", "bob"]);
    await settle(() => {
      lobby.counts(3);
      lobby.emit("entered", { user: "carol" });
    });
    expect(hook.now.present).toEqual(["alice", "bob", "carol"]);
    await settle(() => {
      lobby.counts(2);
      lobby.emit("left", { user: "bob" });
    });
    expect([hook.now.present, hook.now.count]).toEqual([["alice", "carol"], 2]);
    await settle(() => lobby.counts(5000));
    expect([hook.now.present, hook.now.count]).toEqual([[], 5000]);
    lobby.users = ["alice"];
    await settle(() => lobby.counts(1));
    expect(hook.now.present).toEqual(["alice"]);
  });

  test("names and info of those in the room follow every entry, exit and change", async () => {
    const { lobby, hook } = await inLobby();
    expect(hook.now.profiles.size).toBe(0);
    await settle(() => {
      lobby.counts(3);
      lobby.emit("entered", { user: "carol", name: "Carol", info: { colour: "red" } });
    });
    expect(hook.now.profiles.get("carol")).toEqual({ name: "Carol", info: { colour: "red" } });
    const before = hook.now.profiles;
    await settle(() => lobby.emit("profile", { user: "carol", name: "Carol", info: { colour: "red" } }));
    expect(hook.now.profiles).toBe(before);
    await settle(() => lobby.emit("profile", { user: "carol", name: "Caro" }));
    expect(hook.now.profiles.get("carol")).toEqual({ name: "Caro" });
    await settle(() => lobby.emit("profile", { user: "nobody", name: "Nobody" }));
    expect(hook.now.present).toEqual(["alice", "bob", "carol"]);
    await settle(() => {
      lobby.counts(2);
      lobby.emit("left", { user: "carol" });
    });
    expect(hook.now.profiles.has("carol")).toBe(false);
    lobby.profiles = { alice: { name: "Alice", info: { colour: "blue" } } };
    await settle(() => lobby.counts(5));
    expect(hook.now.profiles.get("alice")).toEqual({ name: "Alice", info: { colour: "blue" } });
  });

  test("whoever is put out sees nothing more of the room, and may try again", async () => {
    const { client, lobby, hook } = await inLobby();
    await settle(() => lobby.putOut("removed_by_admin"));
    expect(hook.now).toMatchObject({ joined: false, removed: "removed_by_admin", messages: [], present: [], count: null });
    await settle(() => hook.now.join());
    expect([lobby.joins, hook.now.removed]).toEqual([1, null]);
    await settle(() => lobby.enter(["alice"]));
    expect(texts(hook.now)).toEqual(["m3", "m4", "m5"]);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("a room that the app archives says so", async () => {
    const { lobby, hook } = await inLobby();
    expect(hook.now.archived).toBe(false);
    await settle(() => lobby.emit("archived", true));
    expect(hook.now.archived).toBe(true);
    expect([hook.now.mutedUntil, hook.now.slowModeS]).toEqual([null, 0]);
    await settle(() => lobby.emit("muted", Infinity));
    await settle(() => lobby.emit("slow_mode", 30));
    expect([hook.now.mutedUntil, hook.now.slowModeS]).toEqual([Infinity, 30]);
  });

  test("whoever was put out does not leave for somebody else who is in again", async () => {
    const { lobby, hook } = await inLobby();
    await settle(() => lobby.putOut("removed"));
    void lobby.join(); // the program's own
    hook.unmount();
    await settle();
    expect(lobby.joins).toBe(1);
  });

  test("another user who signs in sees nothing of what the one before saw", async () => {
    const { client, lobby, hook } = await inLobby();
    await settle(() => client.welcomed("alice"));
    await settle(() => void hook.now.send("mine"));
    lobby.records = [said(1, "for bob")];
    await settle(() => client.welcomed("bob"));
    expect([texts(hook.now), hook.now.outgoing]).toEqual([[], []]);
    await settle(() => lobby.enter());
    expect(texts(hook.now)).toEqual(["for bob"]);
  });

  test("a room the program is in already is shown at once, and stays joined for the program", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.records = [said(1, "one")];
    void lobby.join();
    lobby.enter(["alice"]);
    const hook = hookIn(client, () => useRoom<string>("lobby"));
    await settle();
    expect([hook.now.joined, texts(hook.now)]).toEqual([true, ["one"]]);
    hook.unmount();
    await settle();
    expect(lobby.joins).toBe(1);
  });

  test("functions stay the same, and so does everything while nothing happens", async () => {
    const { hook } = await inLobby();
    const before = hook.now;
    hook.again();
    expect(hook.now).toBe(before);
    const { send, setTyping, loadOlder } = before;
    await settle(() => void send("x"));
    expect(hook.now).toMatchObject({ send, setTyping, loadOlder });
  });

  test("typing, unread and reading are the room's", async () => {
    const { lobby, hook } = await inLobby();
    await settle(() => lobby.types("bob"));
    expect(hook.now.typing.typers).toEqual([{ user: "bob", name: null }]);
    await settle(() => lobby.emit("unread", 4));
    expect(hook.now.unread).toBe(4);
    hook.now.setTyping();
    hook.now.setTyping(false);
    expect(lobby.typed).toEqual([true, false]);
    await hook.now.markRead(3);
    expect(lobby.reads).toEqual([3]);
  });

  test("without a connection it says that it is not in the room", async () => {
    const { client, lobby, hook } = await inLobby();
    expect(hook.now.joined).toBe(true);
    lobby.joined = false;
    await settle(() => client.become({ state: "waiting" }));
    expect(hook.now.joined).toBe(false);
    expect(texts(hook.now)).toEqual(["m3", "m4", "m5"]);
  });
});

describe("useTyping and useUnread", () => {
  test("the line names who types, joins the room for that, and shares it with others", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    const hook = hookIn(client, () => ({ typing: useTyping("lobby"), unread: useUnread("lobby"), room: useRoom("lobby") }));
    await settle(() => lobby.enter());
    expect([lobby.joins, lobby.entries]).toEqual([3, 1]);
    await settle(() => lobby.types("alice", "bob"));
    expect(hook.now.typing.text).toBe("alice and bob are typing…");
    await settle(() => lobby.types());
    expect(hook.now.typing.text).toBe("");
    lobby.unread = 2;
    await settle(() => lobby.emit("unread", 2));
    expect(hook.now.unread).toBe(2);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("the line speaks other languages", async () => {
    const client = new FakeClient();
    const words = { one: "{0} schreibt …", two: "{0} und {1} schreiben …", several: "mehrere schreiben …", some: "{n} schreiben …" };
    const hook = hookIn(client, () => useTyping("lobby", { words, locale: "de" }));
    await settle(() => client.room("lobby").types("alice"));
    expect(hook.now.text).toBe("alice schreibt …");
  });
});

describe("useReceipts", () => {
  test("lists who has read how far, and follows; its room is left", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    client.user = "me";
    lobby.readBy = [{ user: "bob", seq: 3 }];
    const hook = hookIn(client, () => useReceipts("lobby"));
    await settle(() => lobby.enter(["alice", "bob"]));
    expect([hook.now.receipts, hook.now.seenBy(3), hook.now.seenBy(4)]).toEqual([[{ user: "bob", seq: 3 }], ["bob"], []]);
    await settle(() => lobby.emit("receipt", { user: "ann", seq: 4 }));
    await settle(() => lobby.emit("receipt", { user: "me", seq: 5 }));
    expect([hook.now.seenBy(3), hook.now.seenBy(5)]).toEqual([["ann", "bob"], []]); // never the user's own
    await settle(() => lobby.emit("receipt_count", { room: "lobby", seq: 5, count: 300 }));
    expect(hook.now.readers).toMatchObject({ seq: 5, count: 300 });
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("a receipt that comes during a fetch is not lost, and after a reconnect the list is fetched again", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.page = new Later();
    const hook = hookIn(client, () => useReceipts("lobby"));
    await settle(() => lobby.enter(["alice"]));
    await settle(() => lobby.emit("receipt", { user: "bob", seq: 4 }));
    await settle(() => lobby.page!.resolve({ receipts: [{ user: "bob", seq: 3 }, { user: "eve", seq: 1 }] }));
    expect(hook.now.receipts).toEqual([{ user: "bob", seq: 4 }, { user: "eve", seq: 1 }]);
    lobby.page = null;
    lobby.readBy = [{ user: "bob", seq: 6 }];
    await settle(() => lobby.enter(["alice"]));
    expect(hook.now.receipts).toEqual([{ user: "bob", seq: 6 }]);
    await settle(() => lobby.emit("removed", "removed_by_admin"));
    expect(hook.now.receipts).toEqual([]);
  });

  test("a room without receipts has none", async () => {
    const client = new FakeClient();
    const lobby = client.room("lobby");
    lobby.page = new Later();
    const hook = hookIn(client, () => useReceipts("lobby"));
    await settle(() => lobby.enter(["alice"]));
    await settle(() => lobby.page!.reject(new GreendotError("forbidden", "no receipts")));
    expect([hook.now.receipts, hook.now.readers]).toEqual([[], null]);
  });
});
