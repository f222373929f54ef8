// Hook for typing in a room.

import type { Typer } from "@greendot/client";
import { typingLine, type TypingOptions, typingSource } from "@greendot/client/stores";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { useSource } from "./source.js";

export interface UsedTyping {
  /** Users who type; empty in large rooms, where only `count` is known. */
  typers: readonly Typer[];
  count: number;
  /** Text such as "Alice and Bob are typing…", or an empty string. */
  text: string;
  /** Report that the user types. Call `setTyping()` at every keystroke, and `setTyping(false)` when the field is empty. */
  setTyping(isTyping?: boolean): void;
}

/** Return the users who type in `room`, and `setTyping`. The client is in the room while the component is mounted. */
export function useTyping(room: string, options: TypingOptions = {}): UsedTyping {
  const client = useGreendot();
  const { typers, count } = useSource((client) => typingSource(client, room), room);
  const setTyping = useMemo(() => (isTyping = true) => client.room(room).typing(isTyping), [client, room]);
  return { typers, count, text: typingLine({ typers, count }, options), setTyping };
}
