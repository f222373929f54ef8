// The hooks against a real server, in StrictMode.

import type { Greendot } from "@greendot/client";
import { cleanup, fireEvent, render, waitFor, within } from "@testing-library/react";
import { StrictMode } from "react";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { GreendotServer, type Line } from "../../../js/test/server/greendot.js";
import { GreendotProvider, useConnection, useInbox, usePresence, useRoom, useTyping, useUnread } from "../../src/index.js";

let server: GreendotServer;

beforeAll(async () => {
  server = await GreendotServer.start({ PRESENCE_CLEAN_GRACE_S: "0.5", TYPING_THROTTLE_S: "0.2", LIMITS_ENABLED: "false" });
});
afterEach(() => {
  cleanup();
  server.reset();
});
afterAll(() => server?.stop());

function Chat({ room, other }: { room: string; other: string }) {
  const { state, user } = useConnection();
  const { messages, outgoing, send, present, unread, hasOlder, loadOlder, markRead } = useRoom<string>(room, { pageSize: 5 });
  const { text, setTyping } = useTyping(room);
  const inbox = useInbox<{ text: string }>();
  const person = usePresence(other);
  return (
    <main>
      <p title="me">{`${user} ${state}`}</p>
      <p title="other">{person?.state}</p>
      <p title="typing">{text}</p>
      <p title="present">{present.join(" ")}</p>
      <p title="unread">{unread}</p>
      <ol title="messages">{messages.map(({ seq, body }) => <li key={seq}>{body}</li>)}</ol>
      <ol title="outgoing">{outgoing.map(({ key, body }) => <li key={key}>{body}</li>)}</ol>
      <ul title="inbox">{inbox.notifications.map(({ id, body, read_at }) => <li key={id}>{`${body.text}${read_at ? "" : " new"}`}</li>)}</ul>
      <p title="bell">{useUnread()}</p>
      <input title="field" onChange={({ target }) => setTyping(target.value !== "")} />
      <button onClick={() => void send(`hello from ${user}`)}>send</button>
      <button onClick={() => void markRead()}>read</button>
      <button onClick={() => void inbox.markRead(inbox.notifications.map(({ id }) => id))}>read all</button>
      {hasOlder && <button onClick={() => void loadOlder()}>older</button>}
    </main>
  );
}

class Person {
  #view;
  #shown;

  constructor(client: Greendot, room: string, other: string) {
    const whole = (
      <StrictMode>
        <GreendotProvider client={client}>
          <Chat room={room} other={other} />
        </GreendotProvider>
      </StrictMode>
    );
    this.#shown = render(whole);
    this.#view = within(this.#shown.container);
  }

  sees(title: string, text: string): Promise<void> {
    const parts = () => [...this.#view.getByTitle(title).childNodes].map((node) => node.textContent).join("|");
    return waitFor(() => expect(parts()).toBe(text), { timeout: 8_000 });
  }

  async clicks(name: string): Promise<void> {
    fireEvent.click(await this.#view.findByText(name));
  }

  types(value: string): void {
    fireEvent.change(this.#view.getByTitle("field"), { target: { value } });
  }

  goes(): void {
    this.#shown.unmount();
  }
}

async function person(user: string, room: string, other: string, line?: Line): Promise<[Person, Greendot]> {
  const client = await server.online(user, line ? { line } : {});
  return [new Person(client, room, other), client];
}

async function openRoom(room: string): Promise<void> {
  await server.http("PUT", `/v1/rooms/${room}`, { open: true });
}

test("two people see each other's dot, typing, messages and who is there", async () => {
  await openRoom("hall");
  const [alice] = await person("alice", "hall", "bob");
  await alice.sees("me", "alice online");
  await alice.sees("other", "offline");
  const [bob] = await person("bob", "hall", "alice");
  await alice.sees("other", "online");
  await alice.sees("present", "alice bob");
  bob.types("he");
  await alice.sees("typing", "Bob is typing…");
  await bob.clicks("send");
  await alice.sees("messages", "hello from bob");
  await bob.sees("messages", "hello from bob");
  await bob.sees("outgoing", "");
  await alice.sees("typing", "");
  await alice.sees("unread", "1");
  await alice.clicks("read");
  await alice.sees("unread", "0");
  bob.goes();
  await alice.sees("present", "alice");
});

test("what is said while the line is down waits, and is in the room once afterwards", async () => {
  await openRoom("attic");
  const line = await server.line();
  const [alice] = await person("alice", "attic", "bob", line);
  const [bob] = await person("bob", "attic", "alice");
  await alice.clicks("send");
  for (const one of [alice, bob]) await one.sees("messages", "hello from alice");
  await alice.sees("outgoing", "");
  line.down();
  await alice.clicks("send");
  await alice.sees("outgoing", "hello from alice");
  await bob.clicks("send");
  await bob.sees("messages", "hello from alice|hello from bob");
  line.mend();
  await alice.sees("outgoing", "");
  for (const one of [alice, bob]) await one.sees("messages", "hello from alice|hello from bob|hello from alice");
});

test("older messages come page by page, edited as they are", async () => {
  await openRoom("archive");
  const author = (await server.online("author")).room<string>("archive");
  await author.join();
  for (let number = 1; number <= 7; number += 1) await author.send(`m${number}`);
  await author.edit(1, "better");
  const [alice] = await person("alice", "archive", "author");
  await alice.sees("messages", "m4|m5|m6|m7"); // and the edit: five records
  await alice.clicks("older");
  await alice.sees("messages", "better|m2|m3|m4|m5|m6|m7");
});

test("notifications arrive, and are read on both devices", async () => {
  await openRoom("lodge");
  const [phone] = await person("dora", "lodge", "bob");
  const [laptop] = await person("dora", "lodge", "bob");
  for (const text of ["one", "two"]) await server.http("POST", "/v1/notifications", { user: "dora", kind: "news", body: { text } });
  for (const device of [phone, laptop]) await device.sees("inbox", "one new|two new");
  await phone.sees("bell", "2");
  await laptop.clicks("read all");
  for (const device of [phone, laptop]) await device.sees("inbox", "one|two");
  for (const device of [phone, laptop]) await device.sees("bell", "0");
});

test("whoever is removed from a room sees nothing more of it", async () => {
  await server.http("PUT", "/v1/rooms/board", {});
  for (const user of ["alice", "bob"]) await server.http("PUT", `/v1/rooms/board/members/${user}`, {});
  const [alice] = await person("alice", "board", "bob");
  const [bob] = await person("bob", "board", "alice");
  await bob.clicks("send");
  await alice.sees("messages", "hello from bob");
  await server.http("DELETE", "/v1/rooms/board/members/alice");
  await alice.sees("messages", "");
  await bob.sees("present", "bob");
});

test("a page that leaves nothing mounted is in no room and watches nobody", async () => {
  await openRoom("cellar");
  const frames: string[] = [];
  const [alice, client] = await person("alice", "cellar", "bob");
  await alice.sees("present", "alice");
  alice.goes();
  await waitFor(async () => expect((await server.http("GET", "/v1/rooms/cellar/present")).count).toBe(0));
  client.on("event", ({ type }) => frames.push(type));
  const bob = await server.online("bob");
  await bob.room("cellar").join();
  await bob.room("cellar").send("is anybody here?");
  await client.rooms(); // whatever was sent before has arrived
  expect(frames).toEqual([]);
});
