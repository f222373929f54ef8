import { Greendot, type GreendotOptions, type Socket } from "@greendot/client";
import { render } from "@testing-library/react";
import { StrictMode, version } from "react";
import { describe, expect, test, vi } from "vitest";
import { GreendotProvider, useConnection, useGreendot } from "../../src/index.js";
import { FakeClient } from "../../../js/test/unit/fake.js";
import { hookIn, settle } from "./show.js";

/** Sockets that never open. */
class Silent implements Socket {
  static all: Silent[] = [];
  readyState = 0;
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  isClosed = false;
  constructor() {
    Silent.all.push(this);
  }
  send(): void {}
  close(): void {
    this.isClosed = true;
  }
}

function options(more: Partial<GreendotOptions> = {}): GreendotOptions {
  Silent.all = [];
  return { url: "ws://example.com", getToken: () => "token", webSocket: Silent, ...more };
}

test("this is the React that was asked for", () => {
  expect(version.split(".")[0]).toBe(process.env["REACT"]);
});

describe("GreendotProvider", () => {
  test("makes a client, connects it once in StrictMode, and closes it with itself", async () => {
    const getToken = vi.fn(() => "token");
    const clients = new Set<Greendot>();
    const Probe = () => <p>{String(clients.add(useGreendot()).size && useConnection().state)}</p>;
    const whole = <StrictMode><GreendotProvider options={options({ getToken })}><Probe /></GreendotProvider></StrictMode>;
    const { container, unmount } = render(whole);
    await settle();
    expect(container.textContent).toBe("connecting");
    expect([getToken.mock.calls.length, Silent.all.length]).toEqual([1, 1]);
    unmount();
    await settle();
    expect([...clients].map(({ state }) => state)).toContain("closed");
    expect([...clients].map(({ state }) => state)).not.toContain("connecting");
    expect(Silent.all[0]!.isClosed).toBe(true);
  });

  test("asks the getToken of the newest render, and does not begin anew for it", async () => {
    const first = vi.fn(() => "first");
    const second = vi.fn(() => null);
    let client: Greendot;
    const Probe = () => ((client = useGreendot()), null);
    const one = options({ getToken: first });
    const { rerender } = render(<GreendotProvider options={one}><Probe /></GreendotProvider>);
    await settle();
    const before = client!;
    rerender(<GreendotProvider options={{ ...one, getToken: second }}><Probe /></GreendotProvider>);
    expect(client!).toBe(before);
    client!.close();
    await settle(() => client.connect());
    expect([first.mock.calls.length, second.mock.calls.length]).toEqual([1, 1]);
  });

  test("a client that was given is neither connected nor closed", async () => {
    const client = new FakeClient();
    const hook = hookIn(client, useGreendot);
    expect(hook.now).toBe(client);
    hook.unmount();
    await settle();
    expect([client.connects, client.closes]).toEqual([0, 0]);
  });

  test("a hook without a provider says what is missing", () => {
    const quiet = vi.spyOn(console, "error").mockImplementation(() => {});
    const Probe = () => <p>{useConnection().state}</p>;
    expect(() => render(<Probe />)).toThrow("no <GreendotProvider> above this component: wrap the component in one");
    expect(() => render(<GreendotProvider {...({} as any)} />)).toThrow("needs the prop `client`, or `options`");
    quiet.mockRestore();
  });
});

describe("useConnection", () => {
  test("follows the state, its reason and the user, and tries now when asked", async () => {
    const client = new FakeClient();
    const hook = hookIn(client, useConnection);
    expect(hook.now).toMatchObject({ state: "idle", reason: null, user: null });
    await settle(() => client.welcomed("alice"));
    expect(hook.now).toMatchObject({ state: "online", user: "alice" });
    const reason = { code: 4000, text: "The server is restarting.", action: "wait", retryInMs: 500, detail: "" } as const;
    await settle(() => client.become({ state: "waiting", reason, failures: 1 }));
    expect(hook.now).toMatchObject({ state: "waiting", reason, failures: 1 });
    hook.now.connect();
    expect(client.connects).toBe(1);
    hook.unmount();
    expect(client.held).toBe(0);
  });
});
