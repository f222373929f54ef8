import { expect, test } from "vitest";
import { useConnection, useInbox, usePresence, useRoom, useTyping, useUnread } from "../../src/index.js";
import { FakeClient, person } from "../../../js/test/unit/fake.js";
import { settle, show } from "./show.js";

function Everything({ number }: { number: number }) {
  const room = `room${number % 3}`;
  useConnection();
  usePresence("alice");
  usePresence(["alice", `user${number}`]);
  useRoom(room);
  useTyping(room);
  useUnread(room);
  useUnread();
  useInbox();
  useInbox({ filter: "unread" });
  return null;
}

test("whatever is mounted, changed and unmounted, in any order, leaves nothing with the client", async () => {
  const client = new FakeClient();
  const { again, unmount } = show(client, null);
  for (let round = 0; round < 20; round += 1) {
    again([...Array(round % 5).keys()].map((at) => <Everything key={(at + round) % 4} number={at + round} />));
    if (round % 4 === 0) await settle(() => client.welcomed("alice"));
    if (round % 3 === 0) await settle(() => client.room("room0").enter(["alice"]));
    if (round % 7 === 0) await settle(() => client.presence.tell(person("alice", "online", round)));
  }
  again(<Everything number={1} />);
  await settle();
  expect(client.held).toBeGreaterThan(0);
  again(null);
  await settle();
  expect(client.held).toBe(0);
  again(<Everything number={1} />);
  unmount();
  await settle();
  expect(client.held).toBe(0);
});

test("a render that is never mounted leaves nothing", async () => {
  const client = new FakeClient();
  const Never = () => {
    throw new Promise(() => {});
  };
  const { unmount } = show(client, <><Everything number={1} /><Never /></>);
  await settle();
  expect(client.held).toBe(0);
  unmount();
});
