// How people stand.

import { type Greendot, lastSeenNext, lastSeenText, type Presence } from "@greendot/client";
import { useCallback, useEffect, useMemo, useReducer, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

const NOBODY: ReadonlyMap<string, Presence> = new Map();

/** How this user stands; undefined until that is known. Followed while the component is mounted. */
export function usePresence(user: string | null | undefined): Presence | undefined;
/** How these users stand, by id; those of whom nothing is known yet are not in the map. Any order, any array. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence>;
export function usePresence(
  who: string | readonly string[] | null | undefined,
): Presence | undefined | ReadonlyMap<string, Presence> {
  const client = useGreendot();
  const names = typeof who === "string" ? who : (who ?? []).join("\n"); // no id has such a character
  const users = useMemo(() => (names ? [...new Set(names.split("\n"))] : []), [names]);
  const subscribe = useCallback((changed: () => void) => client.presence.watch(users, changed), [client, users]);
  const known = useMemo(() => snapshots(client, users), [client, users]);
  const people = useSyncExternalStore(subscribe, known, () => NOBODY);
  return typeof who === "string" || !who ? people.get(who ?? "") : people;
}

/** What is known of `users`: the same map until something of it is another one. */
function snapshots(client: Greendot, users: string[]): () => ReadonlyMap<string, Presence> {
  let last = NOBODY;
  return () => {
    const entries = users.flatMap((user) => client.presence.of(user) ?? []);
    const isSame = entries.length === last.size && entries.every((entry) => last.get(entry.user) === entry);
    return (last = isSame ? last : new Map(entries.map((entry) => [entry.user, entry])));
  };
}

/** "5 minutes ago", and later "6 minutes ago", by itself; empty where the user is not offline, or it is not known. */
export function useLastSeen(
  presence: Presence | undefined,
  options: { locale?: string; justNow?: string } = {},
): string {
  const client = useGreendot();
  const [age, grow] = useReducer((age: number) => age + 1, 0);
  const at = presence?.last_seen ?? null;
  useEffect(() => {
    const ms = lastSeenNext(at, client.now());
    if (ms === null) return;
    const timer = setTimeout(grow, Math.min(ms, 0x7fffffff));
    return () => clearTimeout(timer);
  }, [client, at, age]);
  return lastSeenText(at, client.now(), options);
}
