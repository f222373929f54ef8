import type { ShownMessage } from "@greendot/client";
import { useConnection, usePresence, useReceipts, useRoom, type UsedRoom } from "@greendot/react";
import { Face, Facepile } from "@greendot/react/components";
import { useLayoutEffect, useRef } from "react";
import type { Text } from "./Composer";

const REACTIONS = ["👍", "❤️", "😂"];
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
type Edit = (message: ShownMessage<Text>) => void;

export function Messages({ room: name, edit }: { room: string; edit: Edit }) {
  const room = useRoom<Text>(name, { history: 50 });
  const { messages, outgoing, hasOlder, loading, loadOlder, removed, send, discard, markRead } = room;
  const readers = useReaders(name, messages);
  const list = useRef<HTMLOListElement>(null);
  const newest = messages.at(-1)?.seq;
  useLayoutEffect(() => {
    list.current?.scrollTo({ top: list.current.scrollHeight });
    if (newest && document.visibilityState === "visible") void markRead();
  }, [newest, outgoing.length]);
  if (removed) return <p className="empty">You may not be in this room ({removed}).</p>;
  return (
    <ol className="messages" ref={list} aria-label="Messages" aria-live="polite">
      {hasOlder && <li className="older"><button className="plain" onClick={loadOlder} disabled={loading}>Older messages</button></li>}
      {messages.length + outgoing.length === 0 && !loading && <li className="empty">Nothing was said here yet.</li>}
      {messages.map((message) => (
        <Message key={message.seq} message={message} room={room} edit={edit} readers={readers.get(message.seq) ?? []} />
      ))}
      {outgoing.map(({ key, body, error }) => (
        <li key={key} className="mine draft">
          <span className="from">{error ? `not sent: ${error.message}` : "sending…"}</span>
          <p>{body.text}</p>
          {error && <button className="plain" onClick={() => void send(body, { key })}>Try again</button>}
          {error && <button className="plain" onClick={() => discard(key)}>Discard</button>}
        </li>
      ))}
    </ol>
  );
}

function Message({ message, room: { room, react, archived }, edit, readers }: { message: ShownMessage<Text>; room: UsedRoom<Text>; edit: Edit; readers: string[] }) {
  const { seq, user, name, body, at, deleted, edited, reactions } = message;
  const mayChange = !deleted && !archived;
  const isMine = useConnection().user === user;
  const given = new Map(reactions.map((one) => [one.reaction, one]));
  const offered = new Set([...given.keys(), ...(mayChange ? REACTIONS : [])]);
  return (
    <li className={isMine ? "mine" : undefined}>
      <span className="from"><Face user={user} profile={message} /> {name ?? user} <time dateTime={new Date(at).toISOString()}>{TIME.format(at)}</time></span>
      <p>{deleted ? <i>deleted</i> : body.text}{edited && !deleted && <small> edited</small>}</p>
      <span className="actions">
        {[...offered].map((reaction) => {
          const { count, mine = false } = given.get(reaction) ?? {};
          return <button key={reaction} className="plain" aria-pressed={mine} disabled={!mayChange} onClick={() => void react(seq, reaction, !mine)}>{reaction} {count}</button>;
        })}
        {isMine && mayChange && <button className="plain" onClick={() => edit(message)}>Edit</button>}
        {isMine && mayChange && <button className="plain" onClick={() => void room.delete(seq)}>Delete</button>}
      </span>
      {readers.length > 0 && <SeenBy users={readers} />}
    </li>
  );
}

function SeenBy({ users }: { users: string[] }) {
  const people = usePresence(users);
  const text = `Seen by ${users.map((user) => people.get(user)?.name ?? user).join(", ")}`;
  return <Facepile className="seen" users={users} label={() => text} />;
}

/** Return the other users who have read the messages, by the number of the last message that each has read. */
function useReaders(room: string, messages: readonly ShownMessage<Text>[]): Map<number, string[]> {
  const me = useConnection().user;
  const readers = new Map<number, string[]>();
  for (const { user, seq } of useReceipts(room).receipts) {
    const last = messages.findLast((message) => message.seq <= seq);
    if (last && user !== me && user !== last.user) readers.set(last.seq, [...(readers.get(last.seq) ?? []), user]);
  }
  return readers;
}
