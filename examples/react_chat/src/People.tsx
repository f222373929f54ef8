import { useConnection, useLastSeen, usePresence, useRoom } from "@greendot/react";
import { Avatar } from "@greendot/react/components";
import { useEffect, useRef } from "react";
import { type Me, nudge } from "./backend";

/** List of the users who are in the room, or were in it while this page was open. */
export function People({ room, me }: { room: string; me: Me }) {
  const { user } = useConnection();
  const { present, count } = useRoom(room);
  const met = useRef(new Set<string>());
  useEffect(() => present.forEach((id) => met.current.add(id)), [present]);
  const ids = [...new Set([...present, ...met.current])];
  return (
    <section className="people" aria-label="People">
      <h2>{count === null ? "People" : count === 1 ? "Only you are here" : `${count} people here`}</h2>
      <ul>{ids.map((id) => <Person key={id} id={id} nudge={id === user ? null : () => void nudge(me, id)} />)}</ul>
    </section>
  );
}

function Person({ id, nudge }: { id: string; nudge: (() => void) | null }) {
  const person = usePresence(id);
  const lastSeen = useLastSeen(person);
  const state = person?.state ?? "offline";
  // The changes of a user with very many watchers are not sent. The client reads such a user every minute.
  const polled = person?.mode === "poll" && (person.recently_active ? "recently active" : "not active recently");
  return (
    <li data-user={id}>
      <Avatar user={id} />
      <span className="name">{person?.name ?? id}{!nudge && <small> you</small>}</span>
      <span className="state">{polled || (lastSeen ? `last seen ${lastSeen}` : state)}</span>
      {nudge && <button className="plain" onClick={nudge}>Nudge</button>}
    </li>
  );
}
