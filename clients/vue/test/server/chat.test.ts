// The composables against a real server.

import type { Greendot } from "@greendot/client";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { createApp, defineComponent, h } from "vue";
import { GreendotServer, type Line } from "../../../js/test/server/greendot.js";
import { GreendotProvider, useConnection, useInbox, usePresence, useReceipts, useRoom, useTyping, useUnread } from "../../src/index.js";

let server: GreendotServer;
const pages: Page[] = [];

beforeAll(async () => {
  server = await GreendotServer.start({ PRESENCE_CLEAN_GRACE_S: "0.5", TYPING_THROTTLE_S: "0.2", LIMITS_ENABLED: "false" });
});
afterEach(() => {
  for (const page of pages.splice(0)) page.leave();
  server.reset();
});
afterAll(() => server?.stop());

const Chat = defineComponent({
  props: { room: { type: String, required: true }, other: { type: String, required: true } },
  setup(props) {
    const { state, user } = useConnection();
    const { messages, outgoing, send, present, unread, markRead } = useRoom<string>(() => props.room, { pageSize: 5 });
    const { text, setTyping } = useTyping(() => props.room);
    const { seenBy } = useReceipts(() => props.room);
    const { notifications, markRead: markNotification } = useInbox<{ text: string }>();
    const other = usePresence(() => props.other);
    const bell = useUnread();
    const line = (title: string, value: unknown) => h("p", { title }, String(value ?? ""));
    return () => [
      line("me", `${user.value} ${state.value}`),
      line("other", other.value?.state),
      line("typing", text.value),
      line("present", present.value.join(" ")),
      line("unread", unread.value),
      line("messages", messages.value.map(({ body }) => body).join("|")),
      line("outgoing", outgoing.value.map(({ body }) => body).join("|")),
      line("seen", seenBy(messages.value.at(-1)?.seq ?? 1).join(" ")),
      line("inbox", notifications.value.map(({ body, read_at }) => `${body.text}${read_at ? "" : " new"}`).join("|")),
      line("bell", bell.value),
      h("input", { onInput: ({ target }: Event) => setTyping((target as HTMLInputElement).value !== "") }),
      h("button", { title: "send", onClick: () => void send(`hello from ${user.value}`) }),
      h("button", { title: "read", onClick: () => void markRead() }),
      h("button", { title: "read all", onClick: () => void markNotification(notifications.value.map(({ id }) => id)) }),
    ];
  },
});

class Page {
  #root = document.createElement("div");
  #app;

  constructor(client: Greendot, room: string, other: string) {
    this.#app = createApp({ render: () => h(GreendotProvider, { client }, () => h(Chat, { room, other })) });
    this.#app.mount(this.#root);
    pages.push(this);
  }

  sees(title: string, text: string): Promise<void> {
    return vi.waitFor(() => expect(this.#root.querySelector(`[title="${title}"]`)!.textContent).toBe(text), { timeout: 8_000, interval: 10 });
  }

  clicks(title: string): void {
    this.#root.querySelector<HTMLElement>(`[title="${title}"]`)!.click();
  }

  types(value: string): void {
    const field = this.#root.querySelector("input")!;
    field.value = value;
    field.dispatchEvent(new Event("input"));
  }

  leave(): void {
    this.#app.unmount();
  }
}

async function page(user: string, room: string, other: string, line?: Line): Promise<Page> {
  return new Page(await server.online(user, line ? { line } : {}), room, other);
}

test("two users see each other's dot, typing, messages, receipts and who is there", async () => {
  await server.http("PUT", "/v1/rooms/hall", { open: true, receipts: true });
  const alice = await page("alice", "hall", "bob");
  await alice.sees("me", "alice online");
  await alice.sees("other", "offline");
  const bob = await page("bob", "hall", "alice");
  await alice.sees("other", "online");
  await alice.sees("present", "alice bob");
  bob.types("he");
  await alice.sees("typing", "Bob is typing…");
  bob.clicks("send");
  for (const one of [alice, bob]) await one.sees("messages", "hello from bob");
  await bob.sees("outgoing", "");
  await alice.sees("typing", "");
  await alice.sees("unread", "1");
  alice.clicks("read");
  await alice.sees("unread", "0");
  await bob.sees("seen", "alice");
  pages.splice(pages.indexOf(bob), 1);
  bob.leave();
  await alice.sees("present", "alice");
});

test("messages that are sent without a connection wait, and are in the room once afterwards", async () => {
  await server.http("PUT", "/v1/rooms/attic", { open: true });
  const line = await server.line();
  const alice = await page("alice", "attic", "bob", line);
  const bob = await page("bob", "attic", "alice");
  await alice.sees("present", "alice bob");
  line.down();
  alice.clicks("send");
  await alice.sees("outgoing", "hello from alice");
  bob.clicks("send");
  await bob.sees("messages", "hello from bob");
  line.mend();
  await alice.sees("outgoing", "");
  for (const one of [alice, bob]) await one.sees("messages", "hello from bob|hello from alice");
});

test("notifications arrive, and are read on both devices", async () => {
  await server.http("PUT", "/v1/rooms/lodge", { open: true });
  const devices = [await page("dora", "lodge", "bob"), await page("dora", "lodge", "bob")] as const;
  for (const text of ["one", "two"]) await server.http("POST", "/v1/notifications", { user: "dora", kind: "news", body: { text } });
  for (const device of devices) await device.sees("inbox", "one new|two new");
  await devices[0].sees("bell", "2");
  devices[1].clicks("read all");
  for (const device of devices) await device.sees("inbox", "one|two");
  for (const device of devices) await device.sees("bell", "0");
});
