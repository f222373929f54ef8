// Provider of the client for the components below it.

import { Greendot, type GreendotOptions, type Undo } from "@greendot/client";
import { createContext, createElement, type ReactElement, type ReactNode, useContext, useEffect, useRef, useState } from "react";

export type GreendotProviderProps = { children?: ReactNode } & (
  | {
      /** Your own client. You connect and close it. */
      client: Greendot;
      options?: undefined;
    }
  | {
      /**
       * Options of a client that the provider creates and connects while it is mounted. Only `getToken` may change between
       * renders. For other options or another user, give the provider another `key`.
       */
      options: GreendotOptions;
      client?: undefined;
    }
);

const Context = createContext<Greendot | null>(null);

export function GreendotProvider({ client, options, children }: GreendotProviderProps): ReactElement {
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  const [own] = useState(() => (client || !options ? null : make(options, () => latest.current ?? options)));
  useEffect(() => (own ? hold(own) : undefined), [own]);
  const used = client ?? own;
  if (!used) throw new Error("<GreendotProvider> needs the prop `client`, or `options` from its first render on");
  return createElement(Context.Provider, { value: used }, children);
}

/** Return the client of the nearest provider. During server rendering it never connects. */
export function useGreendot(): Greendot {
  const client = useContext(Context);
  if (!client) throw new Error("no <GreendotProvider> above this component: wrap the component in one");
  return client;
}

function make(options: GreendotOptions, latest: () => GreendotOptions): Greendot {
  // On a server there is no page to resolve a path against, and the client never connects.
  const isPathOfNothing = typeof location === "undefined" && options.url.startsWith("/");
  const url = isPathOfNothing ? `ws://server.invalid${options.url}` : options.url;
  return new Greendot({ ...options, url, getToken: (why) => latest().getToken(why) });
}

const holders = new WeakMap<Greendot, number>();

function hold(client: Greendot): Undo {
  const count = (by: number) => holders.set(client, (holders.get(client) ?? 0) + by);
  count(1);
  client.connect();
  return () => {
    count(-1);
    // Deferred: StrictMode mounts everything a second time in the same turn.
    queueMicrotask(() => holders.get(client) || client.close());
  };
}
