// Provider of the client for the components below it.

import type { Greendot, GreendotOptions } from "@greendot/client";
import { createClient, hold } from "@greendot/client/stores";
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
  const [own] = useState(() => (client || !options ? null : createClient(options, () => latest.current ?? options)));
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
