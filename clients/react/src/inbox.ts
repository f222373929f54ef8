// Hook of the user's inbox.

import type { Greendot, InboxFilter, Marked, Marks } from "@greendot/client";
import { useMemo } from "react";
import { EMPTY, type InboxState, InboxStore } from "./inboxstore.js";
import { useGreendot } from "./provider.js";
import { ignorable, shelfOf, useShared } from "./shared.js";

export interface UsedInbox<Body = unknown> extends InboxState<Body> {
  /** Fetch the page before `notifications`. */
  loadOlder(): Promise<void>;
  markSeen(which: Marks): Promise<void>;
  markRead(which: Marks): Promise<void>;
  archive(which: Marks): Promise<void>;
  /** Acknowledge notifications. Until then the server resends notifications with `ack`, up to ten times and at each connect. */
  ack(which: Marks): Promise<void>;
}

/**
 * Return the newest notifications in ascending order, updated while the component is mounted. `Body` is the type of
 * their bodies. Marks made here appear in every `useInbox` of this client.
 */
export function useInbox<Body = unknown>({ filter = "all", pageSize = 50 }: { filter?: InboxFilter; pageSize?: number } = {}): UsedInbox<Body> {
  const client = useGreendot();
  const name = `inbox ${filter}`;
  const state = useShared<InboxState<Body>>(name, (client) => new InboxStore<Body>(client, filter, pageSize), EMPTY);
  const actions = useMemo(
    () => ({
      loadOlder: async () => (shelfOf(client).find(name) as InboxStore<Body> | undefined)?.loadOlder(),
      markSeen: (which: Marks) => ignorable(mark(client, "seen", which)),
      markRead: (which: Marks) => ignorable(mark(client, "read", which)),
      archive: (which: Marks) => ignorable(mark(client, "archived", which)),
      ack: (which: Marks) => ignorable(mark(client, "acked", which)),
    }),
    [client, name],
  );
  return useMemo(() => ({ ...state, ...actions }), [state, actions]);
}

const COMMANDS = { seen: "seen", read: "read", archived: "archive", acked: "ack" } as const;

async function mark(client: Greendot, state: Marked["state"], which: Marks): Promise<void> {
  await client.inbox[COMMANDS[state]](which);
  const named = typeof which === "string" ? { ids: [which] } : "through" in which ? which : { ids: [...which] };
  // The server sends the mark to the user's other devices only.
  for (const store of shelfOf(client).all) if (store instanceof InboxStore) store.marked({ state, ...named });
}
