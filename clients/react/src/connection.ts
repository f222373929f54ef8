// State of the connection.

import { connectionSource, type UsedConnection } from "@greendot/client/stores";
import { useSource } from "./source.js";

/** Return the state of the connection. While the client is not online, `reason.text` and `reason.action` explain why. */
export function useConnection(): UsedConnection {
  return useSource(connectionSource);
}
