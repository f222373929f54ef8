// Who types in a room.

import { type Typer, type Typing, typingText, type TypingWords } from "@greendot/client";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { RoomPart } from "./roompart.js";
import { useShared } from "./shared.js";

export interface TypingOptions {
  /** For the plurals of `words`. */
  locale?: string;
  words?: TypingWords;
}

export interface UsedTyping {
  /** Who types; empty in large rooms, where only `count` is known. */
  typers: readonly Typer[];
  count: number;
  /** "Alice and Bob are typing…", or nothing. */
  text: string;
  /** Call it at every keystroke, with false when the field is empty again. */
  setTyping(isTyping?: boolean): void;
}

const NOBODY: Typing = Object.freeze({ room: "", typers: [], count: 0 });

/** Who types in `room`. While the component is mounted the room is joined. */
export function useTyping(room: string, { locale, words }: TypingOptions = {}): UsedTyping {
  const client = useGreendot();
  const { typers, count } = useShared(`typing ${room}`, (client) => new RoomPart(client, room, "typing", (of) => of.typers), NOBODY);
  const names = typers.map(({ user, name }) => name ?? user);
  const text = typingText(names, count, { ...(locale && { locale }), ...(words && { words }) });
  const setTyping = useMemo(() => (isTyping = true) => client.room(room).typing(isTyping), [client, room]);
  return { typers, count, text, setTyping };
}
