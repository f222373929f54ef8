// Effect of marks on inbox entries.

import type { InboxEntry, InboxFilter, Marked } from "../index.js";

type Times = Pick<InboxEntry, "seen_at" | "read_at" | "archived_at" | "acked_at">;

// Read implies seen; archived and acknowledged imply read.
const IMPLIED: Record<Marked["state"], (keyof Times)[]> = {
  seen: ["seen_at"],
  read: ["seen_at", "read_at"],
  archived: ["seen_at", "read_at", "archived_at"],
  acked: ["seen_at", "read_at", "acked_at"],
};

/** Apply `mark` to `entry`. Returns the same object if nothing changes. */
export function marked<Entry extends InboxEntry>(entry: Entry, mark: Marked, now: number): Entry {
  const isNamed = mark.ids?.includes(entry.id) || entry.seq <= (mark.through ?? 0);
  const fresh = isNamed ? IMPLIED[mark.state].filter((name) => entry[name] === null) : [];
  return fresh.length ? { ...entry, ...Object.fromEntries(fresh.map((name) => [name, now])) } : entry;
}

/** Return whether the server would list `entry` under `filter`. */
export function isListed(entry: InboxEntry, filter: InboxFilter): boolean {
  if (filter === "archived") return entry.archived_at !== null;
  if (entry.archived_at !== null) return false;
  return filter === "all" || (filter === "unread" ? entry.read_at === null : entry.seen_at === null);
}
