import type { GreendotOptions } from "@greendot/client";
import { type App, createApp, createSSRApp, defineComponent, h, ref } from "vue";
import { renderToString } from "vue/server-renderer";
import { afterEach, expect, test, vi } from "vitest";
import { FakeClient, person } from "../../../js/test/unit/fake.js";
import { greendot, GreendotProvider, provideGreendot, useConnection, useGreendot, useInbox, useLastSeen, usePresence, useRoom, useTyping, useUnread } from "../../src/index.js";
import { mount, reset, settle, show } from "./show.js";

afterEach(reset);

class Sockets {
  opened = 0;
  closed = 0;
  options: GreendotOptions;

  constructor(token: () => string = () => "token") {
    const all = this;
    this.options = {
      url: "ws://example.com",
      getToken: token,
      webSocket: class {
        readyState = 0;
        onopen = null;
        onmessage = null;
        onclose = null;
        onerror = null;
        constructor() {
          all.opened += 1;
        }
        send() {}
        close() {
          all.closed += 1;
        }
      },
    };
  }
}

const Page = defineComponent(() => {
  const { state } = useConnection();
  const { messages, count } = useRoom("lobby");
  const { text } = useTyping("lobby");
  const alice = usePresence("alice");
  const people = usePresence(["bob"]);
  const lastSeen = useLastSeen(alice);
  const [bell, unread] = [useUnread(), useUnread("lobby")];
  const { notifications } = useInbox();
  return () =>
    h("p", [state.value, messages.value.length, text.value, alice.value?.state, people.value.size, lastSeen.value, bell.value, unread.value, count.value, notifications.value.length].join(" "));
});
const EMPTY = "idle 0   0  0 0  0";

/** Return the text of the error that the setup of a component throws. */
function failure(app: App): string {
  const texts: string[] = [];
  app.config.errorHandler = (error) => texts.push((error as Error).message);
  app.config.warnHandler = () => {};
  app.mount(document.createElement("div"));
  return texts.join();
}

test("without a provider, a composable names the calls that are missing", () => {
  expect(failure(createApp({ setup: () => (useConnection(), () => null) }))).toContain("no Greendot client: call provideGreendot()");
});

test("a provider or plugin without client and options names them", () => {
  const none = {} as never;
  expect(() => createApp({ render: () => null }).use(greendot, none)).toThrow("app.use(greendot, …) needs `client` or `options`");
  expect(failure(createApp(GreendotProvider, none))).toBe("provideGreendot() needs `client` or `options`");
});

test("a client of one's own is neither connected nor closed", async () => {
  const client = new FakeClient();
  const { app } = show(client, () => h(Page));
  app.unmount();
  await settle();
  expect([client.connects, client.closes]).toEqual([0, 0]);
});

test("a provider with options connects when mounted and closes when unmounted", async () => {
  const sockets = new Sockets();
  const { app } = mount(() => h(GreendotProvider, { options: sockets.options }, () => h(Page)));
  await vi.waitFor(() => expect(sockets.opened).toBe(1));
  app.unmount();
  await vi.waitFor(() => expect(sockets.closed).toBe(1));
});

test("another key is another client", async () => {
  const made = new Set<unknown>();
  const user = ref("alice");
  const sockets = new Sockets();
  const Probe = defineComponent(() => {
    made.add(useGreendot());
    return () => null;
  });
  mount(() => h(GreendotProvider, { key: user.value, options: sockets.options }, () => h(Probe)));
  await vi.waitFor(() => expect(sockets.opened).toBe(1));
  user.value = "bob";
  await vi.waitFor(() => expect([sockets.opened, sockets.closed]).toEqual([2, 1]));
  expect(made.size).toBe(2);
});

test("a component may use the client that it provides", async () => {
  const sockets = new Sockets();
  const Root = defineComponent(() => {
    const client = provideGreendot({ options: sockets.options });
    const isSame = client === useGreendot();
    const { state } = useConnection();
    return () => h("p", `${isSame} ${state.value}`);
  });
  const { element } = mount(Root);
  await vi.waitFor(() => expect(element.textContent).toMatch(/^true connecting$/));
  await vi.waitFor(() => expect(sockets.opened).toBe(1));
});

test("the plugin connects a mounted app and closes with it", async () => {
  const sockets = new Sockets();
  const app = createApp(Page).use(greendot, { options: sockets.options });
  await settle();
  expect(sockets.opened).toBe(0);
  app.mount(document.createElement("div"));
  await vi.waitFor(() => expect(sockets.opened).toBe(1));
  app.unmount();
  await vi.waitFor(() => expect(sockets.closed).toBe(1));
});

test.each(["wss://example.com", "/greendot"])("on a server everything is empty, nothing is connected (%s)", async (url) => {
  const getToken = vi.fn(() => "token");
  const options: GreendotOptions = { url, getToken };
  const page = await renderToString(createSSRApp({ render: () => h(GreendotProvider, { options }, () => h(Page)) }));
  expect(page).toContain(`<p>${EMPTY}</p>`);
  expect(await renderToString(createSSRApp(Page).use(greendot, { options }))).toBe(`<p>${EMPTY}</p>`);
  expect(getToken).not.toHaveBeenCalled();
});

test("a page from a server is taken over without a mismatch, although values are known", async () => {
  const client = new FakeClient();
  const root = document.createElement("div");
  const make = () => createSSRApp({ render: () => h(GreendotProvider, { client: client.it }, () => h(Page)) });
  root.innerHTML = await renderToString(make());
  const before = root.querySelector("p");
  client.presence.tell(person("alice", "online"));
  client.become({ state: "online" });
  client.inbox.unread = 7;
  const warned = vi.spyOn(console, "warn");
  const failed = vi.spyOn(console, "error");
  const app = make();
  app.mount(root);
  await settle();
  expect(root.querySelector("p")).toBe(before);
  expect(root.textContent).toBe("online 0  online 0  7 0  0");
  for (const spy of [warned, failed]) expect(spy).not.toHaveBeenCalled();
  vi.restoreAllMocks();
  app.unmount();
});
