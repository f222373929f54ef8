// State of the connection.

import { connectionSource, type UsedConnection } from "@greendot/client/stores";
import { useSource } from "./source.js";

/**
 * Return the state of the connection. In the states `waiting`, `offline` and `closed`, `reason.text` explains to the user why
 * the client is not online. `reason.action` is what the user can do, for example `sign-in` or `reload`. The action `wait`
 * means that the client reconnects by itself. In other states, `reason` is null.
 */
export function useConnection(): UsedConnection {
  return useSource(connectionSource);
}
