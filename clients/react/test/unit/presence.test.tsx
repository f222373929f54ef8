import { describe, expect, test, vi } from "vitest";
import { useLastSeen, usePresence } from "../../src/index.js";
import { FakeClient, person } from "../../../js/test/unit/fake.js";
import { act, hookIn, settle, show } from "./show.js";

describe("usePresence", () => {
  test("nothing is known, then it is, then it changes; unmounted, nobody is watched", async () => {
    const client = new FakeClient();
    const hook = hookIn(client, () => usePresence("alice"));
    expect(hook.now).toBeUndefined();
    act(() => client.presence.tell(person("alice", "online")));
    expect(hook.now!.state).toBe("online");
    act(() => client.presence.tell(person("alice", "idle", 2)));
    expect(hook.now!.state).toBe("idle");
    expect(client.presence.watches).toHaveLength(1);
    hook.unmount();
    await settle();
    expect(client.held).toBe(0);
  });

  test("an array that is another one in each render is the same watch, and the same map", () => {
    const client = new FakeClient();
    const watch = vi.spyOn(client.presence, "watch");
    const hook = hookIn(client, () => usePresence(["alice", "bob"]));
    act(() => client.presence.tell(person("alice", "online")));
    const { length } = watch.mock.calls;
    const before = hook.now;
    hook.again();
    expect(hook.now).toBe(before);
    expect([...hook.now.keys()]).toEqual(["alice"]);
    expect(watch.mock.calls).toHaveLength(length);
  });

  test("a snapshot of two hundred people is one render", () => {
    const client = new FakeClient();
    const users = Array.from({ length: 200 }, (_, at) => `user${at}`);
    const hook = hookIn(client, () => usePresence(users));
    const before = hook.values.length;
    act(() => client.presence.tell(...users.map((user) => person(user, "online"))));
    expect(hook.now.size).toBe(200);
    expect(hook.values.length - before).toBeLessThanOrEqual(2); // StrictMode renders twice
  });

  test("what is told of somebody else renders nothing", () => {
    const client = new FakeClient();
    const hook = hookIn(client, () => usePresence("alice"));
    const before = hook.values.length;
    act(() => client.presence.tell(person("bob", "online")));
    expect(hook.values).toHaveLength(before);
  });

  test("another list watches the others, and nobody of before is left over", () => {
    const client = new FakeClient();
    const List = ({ users }: { users: string[] }) => <p>{usePresence(users).size}</p>;
    const { again } = show(client, <List users={["alice", "bob"]} />);
    again(<List users={["bob", "carol"]} />);
    expect(client.presence.watches.map(({ users }) => users)).toEqual([["bob", "carol"]]);
    again(<List users={[]} />);
    expect(client.presence.watches.flatMap(({ users }) => users)).toEqual([]);
  });

  test.each([null, undefined])("%s is nobody", (nobody) => {
    const client = new FakeClient();
    expect(hookIn(client, () => usePresence(nobody)).now).toBeUndefined();
    expect(client.presence.watches.flatMap(({ users }) => users)).toEqual([]);
  });
});

describe("useLastSeen", () => {
  test("grows older by itself, and leaves no timer behind", () => {
    vi.useFakeTimers();
    try {
      const client = new FakeClient();
      const bob = person("bob", "offline", 1, { last_seen: client.time - 5 * 60_000 });
      const hook = hookIn(client, () => useLastSeen(bob));
      expect(hook.now).toBe("5 minutes ago");
      client.time += 60_000;
      act(() => vi.advanceTimersByTime(60_000));
      expect(hook.now).toBe("6 minutes ago");
      hook.unmount();
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test("of somebody who is there, or of whom nothing is known, says nothing", () => {
    const client = new FakeClient();
    expect(hookIn(client, () => useLastSeen(person("bob", "online"))).now).toBe("");
    expect(hookIn(client, () => useLastSeen(undefined)).now).toBe("");
  });
});
