import { useConnection } from "@greendot/react";
import { Composer } from "./Composer";
import { Messages } from "./Messages";
import { People } from "./People";

export function Chat({ room, name, leave }: { room: string; name: string; leave: () => void }) {
  return (
    <div className="chat">
      <aside>
        <header>
          <h1>React chat</h1>
          <p className="me">
            {name} <button className="plain" onClick={leave}>Leave</button>
          </p>
        </header>
        <People room={room} />
      </aside>
      <main>
        <Banner />
        <Messages room={room} />
        <Composer room={room} />
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
