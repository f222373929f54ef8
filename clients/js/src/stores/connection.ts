// Clients that front ends create, connect and close, and the states of their connections.

import { type Connection, Greendot, type GreendotOptions, type Undo } from "../index.js";
import type { Source } from "./shared.js";

const IDLE: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });

/** State of the connection, with the user of the token and a function that connects. */
export interface UsedConnection extends Connection {
  /** Id of the user of the token; null before the first connection. */
  user: string | null;
  /** Connect. In state `waiting` or `offline`, make the next attempt now. */
  connect(): void;
}

/**
 * Return a source of the state of the connection. In the states `waiting`, `offline` and `closed`, `reason.text` explains to
 * the user why the client is not online. `reason.action` is what the user can do, for example `sign-in` or `reload`. The
 * action `wait` means that the client reconnects by itself. In other states, `reason` is null.
 */
export function connectionSource(client: Greendot): Source<UsedConnection> {
  const connect = () => client.connect();
  const empty = { ...IDLE, user: null, connect };
  let [of, value]: [Connection, UsedConnection] = [IDLE, empty];
  return {
    empty,
    get() {
      const { connection } = client;
      if (connection !== of) [of, value] = [connection, { ...connection, user: client.user, connect }];
      return value;
    },
    subscribe: (changed) => client.on("state", changed),
  };
}

/**
 * Create a client that does not connect yet: see `hold`. So the function also works during server rendering.
 *
 * Whenever the client needs a token, it calls `getToken` of the options that `latest` returns. So a component can change
 * `getToken` later. By default, `latest` returns `options`.
 */
export function createClient(options: GreendotOptions, latest: () => GreendotOptions = () => options): Greendot {
  // On a server there is no page to resolve a path against, and the client never connects.
  const isPathOfNothing = typeof location === "undefined" && options.url.startsWith("/");
  const url = isPathOfNothing ? `ws://server.invalid${options.url}` : options.url;
  return new Greendot({ ...options, url, getToken: (why) => latest().getToken(why) });
}

const holders = new WeakMap<Greendot, number>();

/**
 * Connect a client, and return a function that releases the client. When all callers of `hold` have released the client, the
 * client closes. If `hold` is called again in the same turn of the event loop, the client stays connected.
 */
export function hold(client: Greendot): Undo {
  const count = (by: number) => holders.set(client, (holders.get(client) ?? 0) + by);
  count(1);
  client.connect();
  return () => {
    count(-1);
    // Deferred, because React in StrictMode mounts each component a second time in the same turn.
    queueMicrotask(() => holders.get(client) || client.close());
  };
}
