// Binding of the client's stores to React.

import type { Greendot } from "@greendot/client";
import type { Source } from "@greendot/client/stores";
import { useMemo, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

/** Return the value of a source and keep it current while the component is mounted. `parts` identify the source. */
export function useSource<Value>(make: (client: Greendot) => Source<Value>, ...parts: unknown[]): Value {
  const client = useGreendot();
  const { subscribe, get, empty } = useMemo(() => make(client), [client, ...parts]);
  return useSyncExternalStore(subscribe, get, () => empty);
}

/** Return the value of a source together with actions, as one object that stays the same until the value changes. */
export function useWith<Value extends object, Actions extends object>(
  value: Value,
  make: (client: Greendot) => Actions,
  ...parts: unknown[]
): Value & Actions {
  const client = useGreendot();
  const actions = useMemo(() => make(client), [client, ...parts]);
  return useMemo(() => ({ ...value, ...actions }), [value, actions]);
}
