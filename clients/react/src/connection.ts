// State of the connection.

import { connectionSource, type UsedConnection } from "@greendot/client/stores";
import { useSource } from "./source.js";

/**
 * Return the state of the connection. In the states `waiting`, `offline` and `closed`, `reason.text` is a sentence that
 * explains why the client is not online, and `reason.action` is the action for the user. In other states, `reason` is null.
 */
export function useConnection(): UsedConnection {
  return useSource(connectionSource);
}
