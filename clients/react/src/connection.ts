// State of the connection.

import { connectionSource, type UsedConnection } from "@greendot/client/stores";
import { useSource } from "./source.js";

/** Return the state of the connection. `reason` explains why the client is not online (`reason.text`, `reason.action`). */
export function useConnection(): UsedConnection {
  return useSource(connectionSource);
}
