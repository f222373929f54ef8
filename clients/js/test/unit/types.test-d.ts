// What the types promise. Checked, never run.

import { expectTypeOf, test } from "vitest";
import {
  type Badge,
  type Connection,
  Greendot,
  GreendotError,
  type InboxPage,
  type Joined,
  localStore,
  type Notification,
  type Presence,
  type Reason,
  type RoomMessage,
  showMessages,
  type ShownMessage,
  type Signal,
  type Undo,
  type Written,
} from "../../src/index.js";

declare const client: Greendot;
type Said = { text: string };
type Cursor = { x: number; y: number };

test("a client needs where to and who", () => {
  expectTypeOf(Greendot).toBeConstructibleWith({ url: "wss://example.com", getToken: async () => "token" });
  expectTypeOf(Greendot).toBeConstructibleWith({ url: "/", getToken: () => null, storage: localStore(), activity: false });
  // @ts-expect-error: no getToken
  new Greendot({ url: "wss://example.com" });
  // @ts-expect-error: no such option
  new Greendot({ url: "wss://example.com", getToken: () => "", tokn: "" });
});

test("events have the types of what they tell, and on() gives its undo", () => {
  expectTypeOf(client.on).returns.toEqualTypeOf<Undo>();
  client.on("state", (event) => expectTypeOf(event).toEqualTypeOf<Connection>());
  client.on("presence", (event) => expectTypeOf(event).toEqualTypeOf<Presence>());
  client.on("error", (event) => expectTypeOf(event).toEqualTypeOf<GreendotError>());
  client.on("badge", (event) => expectTypeOf(event).toEqualTypeOf<Badge>());
  // @ts-expect-error: no such event
  client.on("stat", () => {});
});

test("states are words one can decide by, reasons say what to do", () => {
  expectTypeOf(client.state).toEqualTypeOf<"idle" | "connecting" | "online" | "waiting" | "offline" | "closed">();
  expectTypeOf(client.reason).toEqualTypeOf<Reason | null>();
  expectTypeOf<Reason["retryInMs"]>().toEqualTypeOf<number | null>();
  // @ts-expect-error: it is told, not set
  client.state = "online";
});

test("a room has a type of body, which messages have and send takes", () => {
  const room = client.room<Said, Cursor>("lobby");
  room.on("message", (message) => expectTypeOf(message).toEqualTypeOf<RoomMessage<Said>>());
  room.on("signal", (signal) => expectTypeOf(signal).toEqualTypeOf<Signal<Cursor>>());
  room.on("removed", (why) => expectTypeOf(why).toEqualTypeOf<string>());
  expectTypeOf(room.send({ text: "hello" })).resolves.toEqualTypeOf<Written>();
  expectTypeOf(room.join()).resolves.toEqualTypeOf<Joined<Said>>();
  expectTypeOf(room.history()).resolves.toEqualTypeOf<RoomMessage<Said>[]>();
  expectTypeOf(room.signal("cursor", { x: 1, y: 2 })).toEqualTypeOf<boolean>();
  expectTypeOf(room.signal("cursor", { x: 1, y: 2 }, { reply: true })).resolves.toEqualTypeOf<void>();
  // @ts-expect-error: not the room's body
  void room.send({ txt: "hello" });
  // @ts-expect-error: not the room's signal
  room.signal("cursor", { x: 1 });
  // Without a type anything may be sent, and nothing is known of what comes.
  void client.room("other").send(1);
  client.room("other").on("message", ({ body }) => expectTypeOf(body).toBeUnknown());
});

test("what belongs to the client alone is not offered", () => {
  expectTypeOf(client.inbox.list<Said>()).resolves.toEqualTypeOf<InboxPage<Said>>();
  client.inbox.on("created", (notification) => expectTypeOf(notification).toEqualTypeOf<Notification<any>>());
  void client.inbox.read("id");
  void client.inbox.read(["a", "b"]);
  void client.inbox.read({ through: 7 });
  // @ts-expect-error: a number alone could be either
  void client.inbox.read(7);
});

test("status and privacy take what the protocol has", () => {
  void client.status.set({ status: "busy", until: new Date() });
  void client.privacy.set({ last_seen: "hidden" });
  // @ts-expect-error: idle is not set but happens
  void client.status.set({ status: "idle" });
});

test("messages to be shown keep their type of body", () => {
  const shown: readonly ShownMessage<Said>[] = [];
  expectTypeOf(showMessages(shown, [] as RoomMessage<Said>[])).toEqualTypeOf<readonly ShownMessage<Said>[]>();
});
