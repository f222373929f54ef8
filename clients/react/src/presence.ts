// Hooks for the presence of users.

import type { Presence } from "@greendot/client";
import { lastSeenSource, presenceSource } from "@greendot/client/stores";
import { useSource } from "./source.js";

/** Return the presence of a user; undefined until it is known. The client watches the user while the component is mounted. */
export function usePresence(user: string | null | undefined): Presence | undefined;
/** Return the presence of users, as a map by user id, without users whose presence is unknown. You may pass a new array in each render. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence>;
export function usePresence(
  who: string | readonly string[] | null | undefined,
): Presence | undefined | ReadonlyMap<string, Presence> {
  const isOne = typeof who === "string" || !who;
  const names = isOne ? (who ?? "") : who.join("\n"); // ids contain no newline
  const people = useSource((client) => presenceSource(client, names ? names.split("\n") : []), names);
  return isOne ? people.get(names) : people;
}

/** Return a text such as "5 minutes ago", which changes as time passes. The text is empty if the user is not offline, or if the time is unknown. */
export function useLastSeen(
  presence: Presence | undefined,
  options: { locale?: string; justNow?: string } = {},
): string {
  return useSource((client) => lastSeenSource(client, presence, options), presence?.last_seen, options.locale, options.justNow);
}
