// The stores against a real server, without a front end.

import { afterAll, afterEach, beforeAll, test } from "vitest";
import { inboxActions, inboxSource, presenceSource, roomActions, roomSource, typingSource } from "../../src/stores/index.js";
import { GreendotServer, until } from "./greendot.js";

let server: GreendotServer;

beforeAll(async () => {
  server = await GreendotServer.start({ LIMITS_ENABLED: "false" });
});
afterEach(() => server.reset());
afterAll(() => server?.stop());

test("presence, typing, messages and the inbox reach the sources of two users", async () => {
  await server.http("PUT", "/v1/rooms/hall", { open: true });
  const [alice, bob] = [await server.online("alice"), await server.online("bob")];
  const [room, theirs] = [roomSource<string>(alice, "hall"), roomSource<string>(bob, "hall")];
  const [people, typing, inbox] = [presenceSource(alice, ["bob"]), typingSource(alice, "hall"), inboxSource(alice)];
  const undo = [room, theirs, people, typing, inbox].map((source) => source.subscribe(() => {}));
  await until(() => people.get().get("bob")?.state === "online");
  await until(() => room.get().present.join(" ") === "alice bob" && theirs.get().joined);
  roomActions<string>(bob, "hall").setTyping();
  await until(() => typing.get().typers[0]?.user === "bob");
  await roomActions<string>(bob, "hall").send("hello");
  await until(() => room.get().messages.map(({ body }) => body).join() === "hello" && !typing.get().count);
  await until(() => theirs.get().outgoing.length === 0);
  await server.http("POST", "/v1/notifications", { user: "alice", kind: "news", body: {} });
  await until(() => inbox.get().unread === 1 && inbox.get().notifications.length === 1);
  await inboxActions(alice).markRead({ through: inbox.get().notifications[0]!.seq });
  await until(() => inbox.get().unread === 0);
  for (const end of undo) end();
  await until(() => !alice.room("hall").joined && !bob.room("hall").joined);
});
