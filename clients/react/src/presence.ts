// Hooks for the presence of users.

import { type Greendot, lastSeenNext, lastSeenText, type Presence } from "@greendot/client";
import { useCallback, useEffect, useMemo, useReducer, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

const NOBODY: ReadonlyMap<string, Presence> = new Map();

/** Return the presence of a user, undefined until it is known. The user is watched while the component is mounted. */
export function usePresence(user: string | null | undefined): Presence | undefined;
/** Return the presence of users by id. Users without a known presence are not in the map. A new array on each render is fine. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence>;
export function usePresence(
  who: string | readonly string[] | null | undefined,
): Presence | undefined | ReadonlyMap<string, Presence> {
  const client = useGreendot();
  const names = typeof who === "string" ? who : (who ?? []).join("\n"); // ids contain no newline
  const users = useMemo(() => (names ? [...new Set(names.split("\n"))] : []), [names]);
  const subscribe = useCallback((changed: () => void) => client.presence.watch(users, changed), [client, users]);
  const known = useMemo(() => snapshots(client, users), [client, users]);
  const people = useSyncExternalStore(subscribe, known, () => NOBODY);
  return typeof who === "string" || !who ? people.get(who ?? "") : people;
}

/** Return a snapshot function for `users`. It returns the same map until an entry changes. */
function snapshots(client: Greendot, users: string[]): () => ReadonlyMap<string, Presence> {
  let last = NOBODY;
  return () => {
    const entries = users.flatMap((user) => client.presence.of(user) ?? []);
    const isSame = entries.length === last.size && entries.every((entry) => last.get(entry.user) === entry);
    return (last = isSame ? last : new Map(entries.map((entry) => [entry.user, entry])));
  };
}

/** Return a text such as "5 minutes ago" and keep it current. Empty if the user is not offline or the time is unknown. */
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
