// Hook for typing in a room.

import { type Typer, type Typing, typingText, type TypingWords } from "@greendot/client";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { RoomPart } from "./roompart.js";
import { useShared } from "./shared.js";

export interface TypingOptions {
  /** Locale for the plurals of `words`. */
  locale?: string;
  words?: TypingWords;
}

export interface UsedTyping {
  /** Users who type; empty in large rooms, where only `count` is known. */
  typers: readonly Typer[];
  count: number;
  /** Text such as "Alice and Bob are typing…", or an empty string. */
  text: string;
  /** Report typing. Call it at every keystroke, with false when the field is empty. */
  setTyping(isTyping?: boolean): void;
}

const NOBODY: Typing = Object.freeze({ room: "", typers: [], count: 0 });

/** Return the users who type in `room`. The room is joined while the component is mounted. */
export function useTyping(room: string, { locale, words }: TypingOptions = {}): UsedTyping {
  const client = useGreendot();
  const { typers, count } = useShared(`typing ${room}`, (client) => new RoomPart(client, room, "typing", (of) => of.typers), NOBODY);
  const names = typers.map(({ user, name }) => name ?? user);
  const text = typingText(names, count, { ...(locale && { locale }), ...(words && { words }) });
  const setTyping = useMemo(() => (isTyping = true) => client.room(room).typing(isTyping), [client, room]);
  return { typers, count, text, setTyping };
}
