import { useRoom, useTyping } from "@greendot/react";
import { type FormEvent, useState } from "react";

export interface Text {
  text: string;
}

export function Composer({ room }: { room: string }) {
  const { send } = useRoom<Text>(room);
  const { text: typing, setTyping } = useTyping(room);
  const [text, setText] = useState("");
  const change = (text: string) => {
    setText(text);
    setTyping(text !== "");
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!text.trim()) return;
    void send({ text: text.trim() });
    setText(""); // sending a message ends the typing
  };
  return (
    <form className="composer" onSubmit={submit}>
      <p className="typing" role="status">{typing}</p>
      <input aria-label={`Message to ${room}`} placeholder={`Message to ${room}`} value={text} onChange={({ target }) => change(target.value)} autoComplete="off" />
      <button disabled={!text.trim()}>Send</button>
    </form>
  );
}
