import { type FormEvent, useState } from "react";

export function Door({ enter }: { enter: (name: string) => void }) {
  const [name, setName] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (name.trim()) enter(name.trim());
  };
  return (
    <main className="door">
      <form onSubmit={submit}>
        <span className="mark" aria-hidden="true" />
        <h1>React chat</h1>
        <p>Open it in two windows, with two names.</p>
        <label htmlFor="name">Your name</label>
        <input id="name" value={name} onChange={({ target }) => setName(target.value)} maxLength={32} autoComplete="off" autoFocus />
        <button disabled={!name.trim()}>Come in</button>
      </form>
    </main>
  );
}
