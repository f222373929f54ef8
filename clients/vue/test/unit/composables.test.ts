import type { TypingWords } from "@greendot/client";
import { computed, effectScope, h, KeepAlive, nextTick, ref, shallowRef, defineComponent, createApp, version } from "vue";
import { afterEach, describe, expect, test, vi } from "vitest";
import { entry, FakeClient, Later, person, said } from "../../../js/test/unit/fake.js";
import { greendot, useConnection, useInbox, useLastSeen, usePresence, useReceipts, useRoom, useTyping, useUnread } from "../../src/index.js";
import { composed, reset, settle, show } from "./show.js";

afterEach(reset);

test("the tests run with the version of their project", () => {
  expect(version.startsWith(process.env["VUE"]!)).toBe(true);
});

describe("usePresence", () => {
  test("a user is unknown, then online, then idle; unmounted, nothing is watched", async () => {
    const client = new FakeClient();
    const { result: alice, app } = composed(client, () => usePresence("alice"));
    expect(alice.value).toBeUndefined();
    client.presence.tell(person("alice", "online"));
    expect(alice.value!.state).toBe("online");
    client.presence.tell(person("alice", "idle", 2));
    expect(alice.value!.state).toBe("idle");
    app.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("a getter of ids follows them, and the same ids are the same watch", async () => {
    const client = new FakeClient();
    const ids = ref(["alice", "bob"]);
    const watch = vi.spyOn(client.presence, "watch");
    const { result: people } = composed(client, () => usePresence(() => [...ids.value]));
    client.presence.tell(person("bob", "online"), person("carol", "busy"));
    ids.value = ["alice", "bob"];
    await nextTick();
    expect(watch).toHaveBeenCalledTimes(1);
    ids.value = ["bob", "carol"];
    await nextTick();
    expect(client.presence.watches.map(({ users }) => users)).toEqual([["bob", "carol"]]);
    expect([...people.value.keys()]).toEqual(["bob", "carol"]);
  });

  test.each([null, undefined])("%s is no user", (none) => {
    const client = new FakeClient();
    expect(composed(client, () => usePresence(none)).result.value).toBeUndefined();
    expect(client.presence.watches.flatMap(({ users }) => users)).toEqual([]);
  });

  test("changes of another user render nothing", async () => {
    const client = new FakeClient();
    let renders = 0;
    const Dot = defineComponent(() => {
      const alice = usePresence("alice");
      return () => h("p", `${(renders += 1)} ${alice.value?.state}`);
    });
    show(client, () => h(Dot));
    client.presence.tell(person("alice", "online"));
    await settle();
    const before = renders;
    client.presence.tell(person("bob", "online"));
    await settle();
    expect(renders).toBe(before);
  });
});

test("useLastSeen grows older, and leaves no timer behind", async () => {
  vi.useFakeTimers();
  try {
    const client = new FakeClient();
    const bob = shallowRef(person("bob", "offline", 1, { last_seen: client.time - 5 * 60_000 }));
    const { result: text, app } = composed(client, () => useLastSeen(bob));
    expect(text.value).toBe("5 minutes ago");
    client.time += 60_000;
    vi.advanceTimersByTime(60_000);
    expect(text.value).toBe("6 minutes ago");
    bob.value = person("bob", "online", 2);
    await nextTick();
    expect(text.value).toBe("");
    app.unmount();
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

describe("useRoom", () => {
  test("another name leaves the room and joins the other one; actions act on the current one", async () => {
    const client = new FakeClient();
    const name = ref("lobby");
    const { result } = composed(client, () => useRoom<string>(name, { history: 20 }));
    client.room("lobby").enter(["alice"], [said(1, "hello")]);
    await settle();
    expect([result.joined.value, result.present.value]).toEqual([true, ["alice"]]);
    expect(client.room("lobby").pages).toEqual([20]);
    name.value = "garden";
    await settle();
    expect([client.room("lobby").joins, client.room("garden").joins]).toEqual([0, 1]);
    expect([result.joined.value, result.messages.value]).toEqual([false, []]);
    void result.send("hi");
    result.setTyping();
    expect(client.room("garden").sent.map(({ body }) => body)).toEqual(["hi"]);
    expect(client.room("garden").typed).toEqual([true]);
    expect(result.outgoing.value.map(({ body }) => body)).toEqual(["hi"]);
    expect(result.room.value).toBe(client.room("garden"));
  });

  test("two components share one join, and the second one leaves the room", async () => {
    const client = new FakeClient();
    const Room = defineComponent(() => {
      const { count } = useRoom("lobby");
      return () => h("p", String(count.value));
    });
    const shown = ref(2);
    show(client, () => Array.from({ length: shown.value }, (_, key) => h(Room, { key })));
    expect(client.room("lobby").entries).toBe(1);
    shown.value = 1;
    await settle();
    expect(client.room("lobby").joins).toBe(1);
    shown.value = 0;
    await settle();
    expect(client.held).toBe(0);
  });

  test("a kept component that is not shown is not in the room", async () => {
    const client = new FakeClient();
    const Room = defineComponent(() => {
      const { messages } = useRoom<string>("lobby");
      return () => h("p", messages.value.length);
    });
    const isShown = ref(true);
    show(client, () => h(KeepAlive, () => (isShown.value ? h(Room) : null)));
    expect(client.room("lobby").joins).toBe(1);
    isShown.value = false;
    await settle();
    expect(client.held).toBe(0);
    isShown.value = true;
    await settle();
    expect(client.room("lobby").joins).toBe(1);
  });
});

test("useTyping has names, a text and a report of one's own typing", async () => {
  const client = new FakeClient();
  const words = ref<TypingWords>();
  const { result } = composed(client, () => useTyping("lobby", () => (words.value ? { words: words.value } : {})));
  client.room("lobby").types("alice", "bob");
  expect(result.text.value).toBe("alice and bob are typing…");
  words.value = { one: "{0} schreibt", two: "{0} und {1} schreiben", several: "mehrere schreiben", some: "jemand schreibt" };
  expect(result.text.value).toBe("alice und bob schreiben");
  expect([result.count.value, result.typers.value.map(({ user }) => user)]).toEqual([2, ["alice", "bob"]]);
  result.setTyping(false);
  expect(client.room("lobby").typed).toEqual([false]);
});

test("useReceipts has the readers of a message", async () => {
  const client = new FakeClient();
  client.user = "alice";
  const room = client.room("lobby");
  room.page = new Later();
  const { result } = composed(client, () => {
    const { receipts, seenBy } = useReceipts("lobby");
    return { receipts, readers: computed(() => seenBy(2)) };
  });
  room.enter(["alice"]);
  room.page.resolve({ receipts: [{ user: "bob", seq: 2 }] });
  await settle();
  expect(result.receipts.value).toEqual([{ user: "bob", seq: 2 }]);
  expect(result.readers.value).toEqual(["bob"]);
});

test("useInbox lists by a filter that may change, marks are in all lists, and useUnread counts", async () => {
  const client = new FakeClient();
  client.inbox.entries = [entry(1), entry(2)];
  client.welcomed("alice");
  const filter = ref<"all" | "unread">("all");
  const { result } = composed(client, () => ({ ...useInbox(() => ({ filter: filter.value })), bell: useUnread() }));
  const { result: other } = composed(client, () => useInbox({ filter: "unread" }));
  await settle();
  expect(result.notifications.value.map(({ id }) => id)).toEqual(["n1", "n2"]);
  await result.markRead("n1");
  expect(other.notifications.value.map(({ id }) => id)).toEqual(["n2"]);
  filter.value = "unread";
  await settle();
  expect(result.notifications.value.map(({ id }) => id)).toEqual(["n2"]);
  client.inbox.unread = 1;
  client.inbox.emit("badge", { unread: 1, unseen: 1 });
  expect(result.bell.value).toBe(1);
});

test("useUnread of a room follows the room", async () => {
  const client = new FakeClient();
  const room = ref<string>();
  const { result: unread } = composed(client, () => useUnread(room));
  room.value = "lobby";
  await settle();
  client.room("lobby").unread = 3;
  client.room("lobby").emit("unread", 3);
  expect(unread.value).toBe(3);
});

test("useConnection has state, reason, user and connect", async () => {
  const client = new FakeClient();
  const { result } = composed(client, useConnection);
  expect([result.state.value, result.user.value]).toEqual(["idle", null]);
  client.welcomed("alice");
  expect([result.state.value, result.user.value]).toEqual(["online", "alice"]);
  result.connect();
  expect(client.connects).toBe(1);
});

test("a scope outside of components, such as a store of the app, ends its subscriptions", async () => {
  const client = new FakeClient();
  const app = createApp({ render: () => null });
  app.use(greendot, { client: client.it });
  const scope = effectScope(true);
  const alice = app.runWithContext(() => scope.run(() => usePresence("alice")))!;
  client.presence.tell(person("alice", "online"));
  expect(alice.value!.state).toBe("online");
  scope.stop();
  await settle();
  expect(client.held).toBe(0);
});

test("a scope that outlives the component in which it was made keeps its subscriptions", async () => {
  const client = new FakeClient();
  const scope = effectScope(true);
  const alice = shallowRef<{ value: { state: string } | undefined }>();
  const First = defineComponent(() => {
    alice.value = scope.run(() => usePresence("alice"))!;
    return () => null;
  });
  const isShown = ref(true);
  show(client, () => (isShown.value ? h(First) : null));
  isShown.value = false;
  await settle();
  client.presence.tell(person("alice", "online"));
  expect(alice.value!.value!.state).toBe("online");
  scope.stop();
  await settle();
  expect(client.held).toBe(0);
});

test("components that come and go in any order leave nothing with the client", async () => {
  const client = new FakeClient();
  const Everything = defineComponent({
    props: { number: { type: Number, required: true } },
    setup(props) {
      const room = () => `room${props.number % 3}`;
      const one = usePresence(() => `user${props.number}`);
      useConnection();
      useLastSeen(one);
      useRoom(room);
      useTyping(room);
      useReceipts(room);
      useUnread(room);
      useUnread();
      useInbox();
      return () => null;
    },
  });
  const numbers = ref<number[]>([]);
  const { app } = show(client, () => numbers.value.map((number, at) => h(Everything, { key: (number + at) % 4, number })));
  for (let round = 0; round < 20; round += 1) {
    numbers.value = [...Array(round % 4).keys()].map((at) => at * 4 + round);
    await (round % 3 ? nextTick() : settle());
    if (round % 4 === 0) client.welcomed("alice");
    if (round % 5 === 0) client.room("room0").enter(["alice"]);
  }
  expect(client.held).toBeGreaterThan(0);
  app.unmount();
  await settle();
  expect(client.held).toBe(0);
});

