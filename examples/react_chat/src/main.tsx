import { GreendotProvider } from "@greendot/react";
import { StrictMode, useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat";
import { Door } from "./Door";

function App({ url }: { url: string }) {
  const [name, setName] = useState(sessionStorage.getItem("name"));
  const enter = (name: string | null) => {
    name ? sessionStorage.setItem("name", name) : sessionStorage.removeItem("name");
    setName(name);
  };
  const options = useMemo(() => ({ url, getToken: () => tokenFor(name!) }), [url, name]);
  if (!name) return <Door enter={enter} />;
  // Another name is another user: the key makes the provider create a new client.
  return (
    <GreendotProvider key={name} options={options}>
      <Chat room="lobby" name={name} leave={() => enter(null)} />
    </GreendotProvider>
  );
}

/** Fetch a token. In your app, the backend signs it for the signed-in user. */
async function tokenFor(name: string): Promise<string> {
  const answer = await fetch(`/token?name=${encodeURIComponent(name)}`, { method: "POST" });
  if (!answer.ok) throw new Error(`no token: ${answer.status}`);
  return answer.text();
}

const { url } = await (await fetch("/config.json")).json();
createRoot(document.querySelector("#root")!).render(
  <StrictMode>
    <App url={url} />
  </StrictMode>,
);
