// The connection of a client that front ends create, connect and close.

import { type Connection, Greendot, type GreendotOptions, type Undo } from "../index.js";
import type { Source } from "./shared.js";

const IDLE: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });

/** State of the connection, with the user and a function that connects. */
export interface UsedConnection extends Connection {
  /** Id of the user of the token; null before the first connection. */
  user: string | null;
  /** Connect. In state `waiting` or `offline`, make the next attempt now. */
  connect(): void;
}

/** Return a source of the state of the connection. While the client is not online, `reason.text` and `reason.action` explain why. */
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
 * Create a client. During server rendering, the client never connects. The parameter `latest` is a function that returns
 * the current options. Whenever the client needs a token, it calls `getToken` of these options. So a component can use a new
 * `getToken` after the creation of the client. By default, `getToken` of `options` is used.
 */
export function createClient(options: GreendotOptions, latest: () => GreendotOptions = () => options): Greendot {
  // On a server there is no page to resolve a path against, and the client never connects.
  const isPathOfNothing = typeof location === "undefined" && options.url.startsWith("/");
  const url = isPathOfNothing ? `ws://server.invalid${options.url}` : options.url;
  return new Greendot({ ...options, url, getToken: (why) => latest().getToken(why) });
}

const holders = new WeakMap<Greendot, number>();

/**
 * Connect a client, and return a function that releases the client. When all callers of `hold` have released the client,
 * the client is closed at the end of this turn of the event loop. If `hold` is called again in this turn, the client stays
 * open.
 */
export function hold(client: Greendot): Undo {
  const count = (by: number) => holders.set(client, (holders.get(client) ?? 0) + by);
  count(1);
  client.connect();
  return () => {
    count(-1);
    // Deferred: React in StrictMode mounts everything a second time in the same turn.
    queueMicrotask(() => holders.get(client) || client.close());
  };
}
