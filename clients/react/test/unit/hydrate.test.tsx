import { hydrateRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { StrictMode } from "react";
import { expect, test, vi } from "vitest";
import { GreendotProvider, useConnection, usePresence, useUnread } from "../../src/index.js";
import { FakeClient, person } from "../../../js/test/unit/fake.js";
import { act, settle } from "./show.js";

test("a page that was rendered on a server is taken over without a difference, then shows what is known", async () => {
  const client = new FakeClient();
  client.become({ state: "online" });
  client.inbox.unread = 5;
  client.presence.known.set("alice", person("alice", "online"));
  const Page = () => <p>{useConnection().state} {usePresence("alice")?.state ?? "unknown"} {useUnread()}</p>;
  const whole = <StrictMode><GreendotProvider client={client.it}><Page /></GreendotProvider></StrictMode>;
  const place = document.createElement("div");
  place.innerHTML = renderToString(whole);
  expect(place.textContent).toBe("idle unknown 0");
  const complained = vi.spyOn(console, "error");
  const recovered = vi.fn();
  const root = await act(async () => hydrateRoot(place, whole, { onRecoverableError: recovered }));
  expect(place.textContent).toBe("online online 5");
  expect([complained.mock.calls, recovered.mock.calls]).toEqual([[], []]);
  act(() => root.unmount());
  await settle();
  expect(client.held).toBe(0);
});
