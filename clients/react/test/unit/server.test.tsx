// @vitest-environment node
import type { GreendotOptions } from "@greendot/client";
import { StrictMode } from "react";
import { renderToString } from "react-dom/server";
import { expect, test, vi } from "vitest";
import { GreendotProvider, useConnection, useInbox, useLastSeen, usePresence, useRoom, useTyping, useUnread } from "../../src/index.js";

export function Page() {
  const { state } = useConnection();
  const { messages, send } = useRoom<{ text: string }>("lobby");
  const { text } = useTyping("lobby");
  const alice = usePresence("alice");
  return (
    <main data-state={state} onClick={() => void send({ text: "hello" })}>
      {messages.length} {text} {alice?.state ?? "unknown"} {useLastSeen(alice)} {useUnread()} {useUnread("lobby")}
      {useInbox().notifications.length} {usePresence(["bob"]).size}
    </main>
  );
}

test.each(["wss://example.com", "/greendot"])("on a server everything is empty, nothing is connected (%s)", (url) => {
  const getToken = vi.fn(() => "token");
  const options: GreendotOptions = { url, getToken };
  const html = renderToString(<StrictMode><GreendotProvider options={options}><Page /></GreendotProvider></StrictMode>);
  expect(html).toContain('data-state="idle"');
  expect(html.replaceAll("<!-- -->", "")).toContain("0  unknown  0 00 0");
  expect(getToken).not.toHaveBeenCalled();
});
