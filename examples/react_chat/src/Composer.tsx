import type { ShownMessage } from "@greendot/client";
import { useRoom } from "@greendot/react";
import { TypingLine } from "@greendot/react/components";
import { type FormEvent, useState } from "react";

export interface Text {
  text: string;
}

/** Field for a new message, or for the message that is being edited. */
export function Composer({ room: name, editing, done }: { room: string; editing: ShownMessage<Text> | null; done: () => void }) {
  const { room, send, setTyping, archived, mutedUntil, slowModeS } = useRoom<Text>(name);
  const [text, setText] = useState(editing?.body.text ?? "");
  const label = editing ? "Edited message" : `Message to ${name}`;
  const change = (text: string) => {
    setText(text);
    if (!editing) setTyping(text !== "");
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const body = { text: text.trim() };
    void (editing ? room.edit(editing.seq, body) : send(body)); // sending a message ends the typing
    setText("");
    done();
  };
  const muted = mutedUntil && `You are muted${mutedUntil < Infinity ? ` until ${new Date(mutedUntil).toLocaleString()}` : ""}.`;
  if (archived || muted) return <p className="archived" role="status">{muted || "This room is archived: it can only be read."}</p>;
  return (
    <form className="composer" onSubmit={submit} onKeyDown={({ key }) => key === "Escape" && done()}>
      <TypingLine room={name} />
      {slowModeS > 0 && <p className="slow" role="status">Slow mode: one message in {slowModeS} s</p>}
      <input aria-label={label} placeholder={label} value={text} onChange={({ target }) => change(target.value)} autoComplete="off" autoFocus={!!editing} />
      <button disabled={!text.trim()}>{editing ? "Save" : "Send"}</button>
    </form>
  );
}
