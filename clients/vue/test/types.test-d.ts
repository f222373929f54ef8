import { Greendot, type InboxEntry, type Presence, type ShownMessage } from "@greendot/client";
import { expectTypeOf, test } from "vitest";
import { createApp, h, ref } from "vue";
import { greendot, GreendotProvider, provideGreendot, useInbox, usePresence, useRoom, useUnread } from "../src/index.js";

interface Text {
  text: string;
}

test("bodies have the types that are given", () => {
  const room = useRoom<Text, { x: number }>(ref("lobby"));
  expectTypeOf(room.messages.value).toEqualTypeOf<readonly ShownMessage<Text>[]>();
  expectTypeOf(room.send).parameter(0).toEqualTypeOf<Text>();
  // @ts-expect-error a body of another type
  void room.send("hello");
  expectTypeOf(useInbox<Text>(() => ({ filter: "unread" })).notifications.value).toEqualTypeOf<readonly InboxEntry<Text>[]>();
  expectTypeOf(useRoom("lobby").messages.value[0]!.body).toEqualTypeOf<unknown>();
});

test("one user is an entry, several are a map", () => {
  expectTypeOf(usePresence(ref("alice")).value).toEqualTypeOf<Presence | undefined>();
  expectTypeOf(usePresence(() => ["alice"]).value).toEqualTypeOf<ReadonlyMap<string, Presence>>();
  expectTypeOf(useUnread().value).toEqualTypeOf<number>();
});

test("a provider has a client or options", () => {
  const client = new Greendot({ url: "ws://example.com", getToken: () => null });
  const options = { url: "ws://example.com", getToken: () => null };
  provideGreendot({ client });
  createApp({}).use(greendot, { options });
  h(GreendotProvider, { options });
  // @ts-expect-error neither
  provideGreendot({});
  // @ts-expect-error both
  provideGreendot({ client, options });
});
