// The client for the components below.

import { Greendot, type GreendotOptions, type Undo } from "@greendot/client";
import { createContext, createElement, type ReactElement, type ReactNode, useContext, useEffect, useRef, useState } from "react";

export type GreendotProviderProps = { children?: ReactNode } & (
  | {
      /** A client of yours: you connect and close it. */
      client: Greendot;
      options?: undefined;
    }
  | {
      /**
       * What to make a client of. It is connected while the provider is mounted. Only `getToken` may change from one
       * render to the next; to begin anew with other options, or for another user, give the provider another `key`.
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
  if (!used) throw new Error("<GreendotProvider> needs a `client`, or `options` to make one of from its first render on");
  return createElement(Context.Provider, { value: used }, children);
}

/** The client of the nearest provider. While rendering on a server it is one that never connects. */
export function useGreendot(): Greendot {
  const client = useContext(Context);
  if (!client) throw new Error("there is no <GreendotProvider> above this component");
  return client;
}

function make(options: GreendotOptions, latest: () => GreendotOptions): Greendot {
  // On a server there is nothing a path could be of; and nothing to connect for.
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
    // Not yet: in StrictMode everything is mounted a second time, this very turn.
    queueMicrotask(() => holders.get(client) || client.close());
  };
}
