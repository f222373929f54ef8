import { Greendot, type InboxEntry, type Presence, type ShownMessage } from "@greendot/client";
import { expectTypeOf, test } from "vitest";
import { GreendotProvider, useInbox, usePresence, useRoom, useUnread } from "../src/index.js";

interface Text {
  text: string;
}

test("bodies have the types that are given", () => {
  const room = useRoom<Text, { x: number }>("lobby");
  expectTypeOf(room.messages).toEqualTypeOf<readonly ShownMessage<Text>[]>();
  expectTypeOf(room.send).parameter(0).toEqualTypeOf<Text>();
  expectTypeOf(room.outgoing[0]!.body).toEqualTypeOf<Text>();
  // @ts-expect-error a body of another type
  void room.send("hello");
  expectTypeOf(useInbox<Text>().notifications).toEqualTypeOf<readonly InboxEntry<Text>[]>();
  expectTypeOf(useRoom("lobby").messages[0]!.body).toEqualTypeOf<unknown>();
});

test("one person is an entry, several are a map", () => {
  expectTypeOf(usePresence("alice")).toEqualTypeOf<Presence | undefined>();
  expectTypeOf(usePresence(["alice"])).toEqualTypeOf<ReadonlyMap<string, Presence>>();
  expectTypeOf(useUnread()).toEqualTypeOf<number>();
});

test("a provider has a client or options", () => {
  const client = new Greendot({ url: "ws://example.com", getToken: () => null });
  const options = { url: "ws://example.com", getToken: () => null };
  void (<GreendotProvider client={client} />);
  void (<GreendotProvider options={options}>text</GreendotProvider>);
  // @ts-expect-error neither
  void (<GreendotProvider />);
  // @ts-expect-error both
  void (<GreendotProvider client={client} options={options} />);
});
