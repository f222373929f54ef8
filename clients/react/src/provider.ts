// Provider of the client for the components below it.

import type { Greendot, GreendotOptions } from "@greendot/client";
import { appStatePage, type AppStateLike, createClient, hold } from "@greendot/client/stores";
import { createContext, createElement, type ReactElement, type ReactNode, useContext, useEffect, useRef, useState } from "react";

export type GreendotProviderProps = { children?: ReactNode } & (
  | {
      /** Your own client. You connect and close it. */
      client: Greendot;
      options?: undefined;
      appState?: undefined;
    }
  | {
      /**
       * Options of a client that the provider creates and connects while it is mounted. Only `getToken` may change between
       * renders. For other options or another user, give the provider another `key`.
       */
      options: GreendotOptions;
      client?: undefined;
      /**
       * `AppState` of React Native: in the foreground the user is active, in the background not. On return the client checks
       * its connection at once. A client of your own needs the option `page: appStatePage(AppState)`.
       */
      appState?: AppStateLike;
    }
);

const Context = createContext<Greendot | null>(null);

export function GreendotProvider({ client, options, appState, children }: GreendotProviderProps): ReactElement {
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  const [own] = useState(() => {
    if (client || !options) return null;
    const page = appState ? { page: appStatePage(appState) } : {};
    return createClient({ ...options, ...page }, () => latest.current ?? options);
  });
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
