// Presence of users.

import { type Greendot, lastSeenNext, lastSeenText, type Presence } from "../index.js";
import type { Source } from "./shared.js";


const NONE: ReadonlyMap<string, Presence> = new Map();
const LONGEST_MS = 0x7fffffff; // setTimeout fires at once for longer delays

/** Return a source of the presence of users, as a map by user id. The map has only users whose presence is known. */
export function presenceSource(client: Greendot, users: readonly string[]): Source<ReadonlyMap<string, Presence>> {
  const unique = [...new Set(users)];
  let last = NONE;
  return {
    empty: NONE,
    get() {
      const entries = unique.flatMap((user) => client.presence.of(user) ?? []);
      const isSame = entries.length === last.size && entries.every((entry) => last.get(entry.user) === entry);
      return (last = isSame ? last : new Map(entries.map((entry) => [entry.user, entry])));
    },
    subscribe: (changed) => client.presence.watch(unique, changed),
  };
}

/**
 * Return a source of a text such as "5 minutes ago". The text changes as time passes. If the user is not offline, or if the
 * time is unknown, the text is empty.
 */
export function lastSeenSource(
  client: Greendot,
  presence: Presence | undefined,
  options: { locale?: string; justNow?: string } = {},
): Source<string> {
  const at = presence?.last_seen ?? null;
  return {
    empty: "",
    get: () => lastSeenText(at, client.now(), options),
    subscribe(changed) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const wait = () => {
        const ms = lastSeenNext(at, client.now());
        if (ms === null) return;
        timer = setTimeout(() => {
          wait();
          changed();
        }, Math.min(ms, LONGEST_MS));
      };
      wait();
      return () => clearTimeout(timer);
    },
  };
}
