// Every component in each of its states. The clients are those of the unit tests: no server is needed.

import type { InboxEntry, Presence } from "@greendot/client";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { entry, FakeClient, Later, person } from "../../js/test/unit/fake.js";
import { Avatar, Face, Facepile, InboxBell, TypingLine } from "../src/components/index.js";
import { GreendotProvider } from "../src/index.js";

interface StoryProps {
  title: string;
  /** Put the client into the state of the story, before and after the components are mounted. */
  before?: (client: FakeClient) => void;
  after?: (client: FakeClient) => void;
  children: ReactNode;
}

function Story({ title, before, after, children }: StoryProps) {
  const [client] = useState(() => {
    const made = new FakeClient();
    made.time = Date.UTC(2026, 0, 1);
    made.welcomed("me");
    before?.(made);
    return made;
  });
  useEffect(() => after?.(client), [client]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <GreendotProvider client={client.it}>{children}</GreendotProvider>
    </figure>
  );
}

const PEOPLE: [string, string, Presence["state"], Presence["info"]?][] = [
  ["alice", "Alice Liddell", "online", { avatar: "🦊", colour: "#d9692a" }],
  ["bob", "Bob Miller", "idle", { avatar: "🐢", colour: "#2f8f5b" }],
  ["carol", "Carol", "busy", { colour: "#7a68bd" }],
  ["dave", "Dave Long-Surname", "offline"],
  ["erin", "Erin", "online", { colour: "#1d6f99" }],
  ["finn", "Finn", "online"],
  ["gwen", "Gwen", "idle"],
];
const IDS = PEOPLE.map(([id]) => id);
const known = (client: FakeClient) => client.presence.tell(...PEOPLE.map(([id, name, state, info]) => person(id, state, 1, { name, ...(info && { info }) })));
const IMAGE = `data:image/svg+xml,${encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="#1d6f99"/><circle cx="4" cy="3" r="1.6" fill="#fff"/><path d="M1 8a3 3 0 0 1 6 0" fill="#fff"/></svg>')}`;

const enter = (users: string[], count = users.length) => (client: FakeClient) => {
  known(client);
  client.room("lobby").enter(users);
  client.room("lobby").counts(count);
};
const types = (...users: string[]) => (client: FakeClient) => client.room("lobby").types(...users);

const HOUR = 3_600_000;
const TEXTS = ["Alice mentioned you in “Design review”", "Your export is ready", "Bob invited you to the room “Quarterly planning and budget for the next two years”", "Carol replied"];
const entries: InboxEntry<any>[] = TEXTS.map((title, at) => entry(at + 1, { body: { title }, created_at: at * HOUR, read_at: at < 2 ? 1 : null, seen_at: 1 }));
const inbox = (unread: number, all: InboxEntry<any>[] = []) => (client: FakeClient) => {
  client.inbox.entries = all;
  client.inbox.unread = unread;
};

// A panel closes when the focus leaves it. Here several are open, until a key or the pointer is used.
let isUsed = false;
for (const type of ["keydown", "pointerdown"]) addEventListener(type, () => (isUsed = true), { capture: true, once: true });

/** Press the button of the bell inside. */
function Opened({ children }: { children: ReactNode }) {
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => root.current!.querySelector("button")!.click(), []);
  return <div ref={root} onBlurCapture={(event) => isUsed || event.stopPropagation()}>{children}</div>;
}

function Section({ name, children }: { name: string; children: ReactNode }) {
  return <section aria-label={name}><h2>{name}</h2><div className="stories">{children}</div></section>;
}

function Stories() {
  return (
    <main>
      <h1>Components of @greendot/react</h1>
      <Section name="Avatar">
        <Story title="unknown"><Avatar user="zoe" /></Story>
        {PEOPLE.slice(0, 4).map(([id, , state]) => <Story key={id} title={state} before={known}><Avatar user={id} /></Story>)}
        <Story title="image" before={known}><Avatar user="erin"><img src={IMAGE} alt="" /></Avatar></Story>
        <Story title="large" before={known}><Avatar user="alice" className="large" /></Story>
        <Story title="Face"><Face user="bob" profile={{ name: "Bob Miller" }} /></Story>
      </Section>
      <Section name="Facepile">
        <Story title="empty room" after={enter([])}><Facepile room="lobby" /></Story>
        <Story title="one" after={enter(["alice"])}><Facepile room="lobby" /></Story>
        <Story title="three" after={enter(IDS.slice(0, 3))}><Facepile room="lobby" /></Story>
        <Story title="more than fit" after={enter(IDS)}><Facepile room="lobby" /></Story>
        <Story title="large room" after={enter([], 250)}><Facepile room="lobby" /></Story>
        <Story title="given users" before={known}><Facepile users={["dave", "alice"]} /></Story>
      </Section>
      <Section name="TypingLine">
        <Story title="silence"><TypingLine room="lobby" /></Story>
        <Story title="one" after={types("Alice")}><TypingLine room="lobby" /></Story>
        <Story title="two" after={types("Alice", "Bob")}><TypingLine room="lobby" /></Story>
        <Story title="several" after={types("Alice", "Bob", "Carol")}><TypingLine room="lobby" /></Story>
      </Section>
      <Section name="InboxBell">
        <Story title="nothing unread"><InboxBell /></Story>
        <Story title="three unread" before={inbox(3)}><InboxBell /></Story>
        <Story title="many unread" before={inbox(120)}><InboxBell /></Story>
        <Story title="open" before={inbox(2, entries)}><Opened><InboxBell footer={<p>Footer of the app</p>} /></Opened></Story>
        <Story title="open, empty"><Opened><InboxBell /></Opened></Story>
        <Story title="open, loading" before={(client) => (client.inbox.next = new Later())}><Opened><InboxBell /></Opened></Story>
        <Story title="open, failed" before={(client) => (client.inbox.list = () => Promise.reject(new Error("the server is overloaded; try again in 5 s")))}>
          <Opened><InboxBell /></Opened>
        </Story>
      </Section>
    </main>
  );
}

createRoot(document.querySelector("#root")!).render(<Stories />);
