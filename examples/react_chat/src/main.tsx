import { GreendotProvider } from "@greendot/react";
import { type FormEvent, StrictMode, useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { type Me, tokenFor } from "./backend";
import { Chat } from "./Chat";

const COLOURS: Record<string, string> = { "🦊": "#d9692a", "🐢": "#2f8f5b", "🐙": "#c04a7c", "🦉": "#7a68bd", "🐳": "#2f80ad" };

function App({ url }: { url: string }) {
  const [me, setMe] = useState<Me | null>(JSON.parse(sessionStorage.getItem("me") ?? "null"));
  const enter = (me: Me | null) => {
    sessionStorage.setItem("me", JSON.stringify(me));
    setMe(me);
  };
  const options = useMemo(() => ({ url, getToken: () => tokenFor(me!) }), [url, me]);
  if (!me) return <Door enter={enter} />;
  // Another name is another user: the key makes the provider create a new client.
  return (
    <GreendotProvider key={me.name} options={options}>
      <Chat room="lobby" me={me} leave={() => enter(null)} />
    </GreendotProvider>
  );
}

function Door({ enter }: { enter: (me: Me) => void }) {
  const [name, setName] = useState("");
  const [avatar, setAvatar] = useState("🦊");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    enter({ name: name.trim(), avatar, colour: COLOURS[avatar]! });
  };
  return (
    <main className="door">
      <form onSubmit={submit}>
        <h1>React chat</h1>
        <p>Open it in two windows, with two names.</p>
        <label htmlFor="name">Your name</label>
        <input id="name" value={name} onChange={({ target }) => setName(target.value)} maxLength={32} autoComplete="off" autoFocus />
        <label htmlFor="avatar">Your avatar</label>
        <select id="avatar" value={avatar} onChange={({ target }) => setAvatar(target.value)}>
          {Object.keys(COLOURS).map((one) => <option key={one}>{one}</option>)}
        </select>
        <button disabled={!name.trim()}>Come in</button>
      </form>
    </main>
  );
}

const { url } = await (await fetch("/config.json")).json();
createRoot(document.querySelector("#root")!).render(<StrictMode><App url={url} /></StrictMode>);
