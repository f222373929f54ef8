// @vitest-environment node
// The hooks as in React Native: a renderer without a DOM, and AppState in place of the events of a page.

import { create, type ReactTestRenderer } from "react-test-renderer";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import { GreendotServer, type Line, until } from "../../../js/test/server/greendot.js";
import { type AppStateLike, GreendotProvider, useConnection, useInbox, useLastSeen, usePresence, useReceipts, useRoom, useTyping, useUnread } from "../../src/index.js";

let server: GreendotServer;
const shown: ReactTestRenderer[] = [];

beforeAll(async () => {
  vi.spyOn(console, "error").mockImplementation((text: string) => expect(text).toContain("react-test-renderer is deprecated"));
  server = await GreendotServer.start({ PRESENCE_IDLE_S: "1", LIMITS_ENABLED: "false" });
  await server.http("PUT", "/v1/rooms/hall", { open: true });
});
afterEach(() => {
  for (const app of shown.splice(0)) app.unmount();
  server.reset();
});
afterAll(() => {
  vi.restoreAllMocks();
  return server?.stop();
});

/** `AppState` of React Native, which a test moves. */
class FakeAppState implements AppStateLike {
  currentState = "active";
  listeners = new Set<(state: string) => void>();

  addEventListener(_: "change", listener: (state: string) => void): { remove(): void } {
    this.listeners.add(listener);
    return { remove: () => void this.listeners.delete(listener) };
  }

  become(state: string): void {
    this.currentState = state;
    for (const listener of this.listeners) listener(state);
  }
}

const VIEW = "View" as unknown as "div"; // host components of React Native are names for the renderer

function Screen() {
  const { state, user } = useConnection();
  const { messages, send, present, markRead } = useRoom<string>("hall");
  const { text, setTyping } = useTyping("hall");
  const { receipts } = useReceipts("hall");
  const bob = usePresence("bob");
  const { notifications } = useInbox();
  return (
    <VIEW
      {...{ send: () => send("hello"), markRead, setTyping }}
      title={JSON.stringify([user, state, messages.map(({ body }) => body), present, text, receipts.length, bob?.state ?? null, useLastSeen(bob), useUnread(), notifications.length])}
    />
  );
}

function open(user: string, appState: AppStateLike, line?: Line): { app: ReactTestRenderer; sees(part: string | RegExp): Promise<void> } {
  const url = line ? `ws://127.0.0.1:${line.port}` : server.url;
  const backoff = { baseMs: 60_000, capMs: 60_000 }; // only AppState brings the client back in time
  const options = { url, getToken: () => server.token(user), webSocket: WebSocket as any, backoff, random: () => 0.9 };
  const app = create(<GreendotProvider options={options} appState={appState}><Screen /></GreendotProvider>);
  shown.push(app);
  const sees = (part: string | RegExp) => vi.waitFor(() => expect(app.root.findByType(VIEW).props.title).toMatch(part), { timeout: 8_000, interval: 10 });
  return { app, sees };
}

test("there is no page, and the hooks show presence, messages and typing", async () => {
  expect([typeof window, typeof document]).toEqual(["undefined", "undefined"]);
  const { app, sees } = open("alice", new FakeAppState());
  await sees(/^\["alice","online",\[\],\["alice"\]/);
  const bob = await server.online("bob");
  await bob.room("hall").join();
  await sees('"alice","bob"');
  await sees(/"(online|idle)","",0,0\]/);
  bob.room("hall").typing();
  await sees("Bob is typing…");
  app.root.findByType(VIEW).props.send();
  await sees('"hello"');
});

test("the foreground is activity, the background is not, and a return to the foreground is", async () => {
  const appState = new FakeAppState();
  const { sees } = open("carol", appState);
  await sees('"online"');
  const watcher = await server.online("dave");
  const states: string[] = [];
  watcher.presence.watch("carol", ({ state }) => states.push(state));
  appState.become("background");
  await until(() => states.at(-1) === "idle");
  appState.become("active");
  await until(() => states.at(-1) === "online");
});

test("a return to the foreground reconnects at once, and an unmounted app listens no longer", async () => {
  const appState = new FakeAppState();
  const line = await server.line();
  const { app, sees } = open("erin", appState, line);
  await sees('"erin","online"');
  appState.become("background");
  line.down();
  await sees('"erin","waiting"');
  line.mend();
  appState.become("active");
  await sees('"erin","online"');
  expect(appState.listeners.size).toBeGreaterThan(0);
  app.unmount();
  shown.splice(0);
  await until(() => appState.listeners.size === 0);
});
