import { useConnection, useRoom } from "@greendot/react";
import { useLayoutEffect, useRef } from "react";
import type { Text } from "./Composer";

const LIKE = { reaction: "👍", count: 0, mine: false };
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

export function Messages({ room }: { room: string }) {
  const { user } = useConnection();
  const { messages, outgoing, hasOlder, loading, loadOlder, removed, send, react, discard, markRead } = useRoom<Text>(room, { history: 50 });
  const list = useRef<HTMLOListElement>(null);
  const newest = messages.at(-1)?.seq;
  useLayoutEffect(() => {
    list.current?.scrollTo({ top: list.current.scrollHeight });
    if (newest && document.visibilityState === "visible") void markRead().catch(() => {});
  }, [newest, outgoing.length]);
  if (removed) return <p className="empty">You may not be in this room ({removed}).</p>;
  return (
    <ol className="messages" ref={list} aria-label="Messages" aria-live="polite">
      {hasOlder && (
        <li className="older">
          <button className="plain" onClick={loadOlder} disabled={loading}>Older messages</button>
        </li>
      )}
      {messages.length + outgoing.length === 0 && !loading && <li className="empty">Nothing was said here yet.</li>}
      {messages.map(({ seq, user: author, name, body, at, deleted, edited, reactions }) => (
        <li key={seq} className={author === user ? "mine" : undefined}>
          <span className="from">{name ?? author} <time dateTime={new Date(at).toISOString()}>{TIME.format(at)}</time></span>
          <p>{deleted ? <i>taken back</i> : body.text}{edited && <small> edited</small>}</p>
          <span className="reactions">
            {(reactions.some(({ reaction }) => reaction === "👍") || deleted ? reactions : [...reactions, LIKE]).map(({ reaction, count, mine }) => (
              <button key={reaction} className="plain" aria-pressed={mine} onClick={() => void react(seq, reaction, !mine)}>
                {reaction} {count || ""}
              </button>
            ))}
          </span>
        </li>
      ))}
      {outgoing.map(({ key, body, error }) => (
        <li key={key} className="mine draft">
          <span className="from">{error ? "not sent" : "sending…"}</span>
          <p>{body.text}</p>
          {error && (
            <span>
              {error.message} <button className="plain" onClick={() => void send(body, { key })}>Try again</button>{" "}
              <button className="plain" onClick={() => discard(key)}>Discard</button>
            </span>
          )}
        </li>
      ))}
    </ol>
  );
}
