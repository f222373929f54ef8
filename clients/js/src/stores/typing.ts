// Typing in a room.

import { type Greendot, type Typing, typingText, type TypingWords } from "../index.js";
import { RoomPart } from "./roompart.js";
import { sharedSource, type Source } from "./shared.js";

/** Options of a text such as "Alice and Bob are typing…". */
export interface TypingOptions {
  /** Locale of the text, for its plural forms. */
  locale?: string;
  /** Phrases of the text, for a text that is not English. */
  words?: TypingWords;
}

const NONE: Typing = Object.freeze({ room: "", typers: [], count: 0 });

/** Return a source of the users who type in a room. While the source has a subscriber, the client is in the room. */
export function typingSource(client: Greendot, room: string): Source<Typing> {
  return sharedSource(client, `typing ${room}`, () => new RoomPart(client, room, "typing", (of) => of.typers), NONE);
}

/** Return a text such as "Alice and Bob are typing…". If no user types, the text is empty. */
export function typingLine({ typers, count }: Pick<Typing, "typers" | "count">, { locale, words }: TypingOptions = {}): string {
  const names = typers.map(({ user, name }) => name ?? user);
  return typingText(names, count, { ...(locale && { locale }), ...(words && { words }) });
}
