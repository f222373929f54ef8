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
       * Options of a client that the provider creates. The client is connected while the provider is mounted, and never
       * during server rendering. Only `getToken` may change between renders. To change another option or the user, give
       * the provider another `key` (the React prop).
       */
      options: GreendotOptions;
      client?: undefined;
      /**
       * `AppState` of React Native. The user then counts as active while the app is in the foreground, and the client checks
       * its connection when the app returns to the foreground. If you pass a `client` instead of `options`, create it with
       * the option `page: appStatePage(AppState)`.
       */
      appState?: AppStateLike;
    }
);

const Context = createContext<Greendot | null>(null);

/** Provide a client for the hooks in all components inside this provider. Pass your own `client`, or `options` for a new client. */
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

/** Return the client of the nearest `GreendotProvider` above the component. */
export function useGreendot(): Greendot {
  const client = useContext(Context);
  if (!client) throw new Error("no <GreendotProvider> above this component: wrap the component in one");
  return client;
}
