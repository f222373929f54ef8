// How it stands with the server.

import type { Connection } from "@greendot/client";
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

export interface UsedConnection extends Connection {
  /** The user the token is for; null before the first welcome. */
  user: string | null;
  /** Connect; while it waits for the next attempt: make that now. */
  connect(): void;
}

const IDLE: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });

/** The state of the connection, why it is not online, and what there is to do (`reason.text`, `reason.action`). */
export function useConnection(): UsedConnection {
  const client = useGreendot();
  const subscribe = useCallback((changed: () => void) => client.on("state", changed), [client]);
  const connection = useSyncExternalStore(subscribe, () => client.connection, () => IDLE);
  return useMemo(
    () => ({ ...connection, user: connection === IDLE ? null : client.user, connect: () => client.connect() }),
    [client, connection],
  );
}
