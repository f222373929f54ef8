// State of the connection.

import type { Connection } from "@greendot/client";
import { useCallback, useMemo, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

export interface UsedConnection extends Connection {
  /** The user of the token; null before the first welcome. */
  user: string | null;
  /** Connect. In state `waiting` or `offline`, make the next attempt now. */
  connect(): void;
}

const IDLE: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });

/** Return the state of the connection. `reason` explains why the client is not online (`reason.text`, `reason.action`). */
export function useConnection(): UsedConnection {
  const client = useGreendot();
  const subscribe = useCallback((changed: () => void) => client.on("state", changed), [client]);
  const connection = useSyncExternalStore(subscribe, () => client.connection, () => IDLE);
  return useMemo(
    () => ({ ...connection, user: connection === IDLE ? null : client.user, connect: () => client.connect() }),
    [client, connection],
  );
}
