import type { ShownMessage } from "@greendot/client";
import { useConnection } from "@greendot/react";
import { Face } from "@greendot/react/components";
import { useState } from "react";
import type { Me } from "./backend";
import { Bell } from "./Bell";
import { Composer, type Text } from "./Composer";
import { Messages } from "./Messages";
import { People } from "./People";

export function Chat({ room, me, leave }: { room: string; me: Me; leave: () => void }) {
  const [editing, setEditing] = useState<ShownMessage<Text> | null>(null);
  return (
    <div className="chat">
      <aside>
        <header>
          <h1>React chat</h1>
          <Bell />
          <p className="me"><Face user={me.name} profile={{ name: me.name, info: me }} /> {me.name} <button className="plain" onClick={leave}>Leave</button></p>
        </header>
        <People room={room} me={me} />
      </aside>
      <main>
        <Banner />
        <Messages room={room} edit={setEditing} />
        <Composer key={editing?.seq} room={room} editing={editing} done={() => setEditing(null)} />
      </main>
    </div>
  );
}

/** Notice about a lost connection, with an action for the user. Empty while the client is online. */
function Banner() {
  const { state, reason, connect } = useConnection();
  if (state === "online" || !reason) return <p className="banner" role="status" hidden />;
  return (
    <p className="banner" role="status">
      {reason.text} {state !== "connecting" && <button className="plain" onClick={connect}>Try now</button>}
    </p>
  );
}
