// Binding of the client's stores to Vue.

import type { Greendot } from "@greendot/client";
import type { Source } from "@greendot/client/stores";
import {
  computed,
  type ComputedRef,
  getCurrentInstance,
  getCurrentScope,
  onActivated,
  onDeactivated,
  onMounted,
  onScopeDispose,
  shallowRef,
  type ShallowRef,
  watch,
} from "vue";
import { useGreendot } from "./provider.js";

/** A ref for each field. */
export type Refs<State> = { readonly [Name in keyof State]: ComputedRef<State[Name]> };

/**
 * Return the value of a source as a ref. `make` may read refs: if they change, another source takes over. The value is
 * empty until the component is mounted, so that pages from a server match. It is current until the scope ends.
 */
export function useSource<Value>(make: (client: Greendot) => Source<Value>): Readonly<ShallowRef<Value>> {
  const client = useGreendot();
  const source = computed(() => make(client));
  const value = shallowRef(source.value.empty) as ShallowRef<Value>;
  const scope = getCurrentScope();
  let stop: (() => void) | null = null;
  const follow = ({ get, subscribe }: Source<Value>, _: unknown, onCleanup: (undo: () => void) => void) => {
    const read = () => void (value.value = get());
    onCleanup(subscribe(read));
    read();
  };
  const start = () => (stop ??= scope!.run(() => watch(source, follow, { immediate: true }))!);
  const end = () => (stop?.(), (stop = null));
  const instance = getCurrentInstance() as { scope?: unknown } | null;
  if (instance) onMounted(start);
  else if (typeof document !== "undefined") start(); // a scope outside of components, in a page
  if (instance?.scope === scope) {
    onActivated(start);
    onDeactivated(end);
  }
  onScopeDispose(end);
  return value;
}

/** Return refs for the fields of `state`, and the functions of `actions`, which always act on the current room or filter. */
export function spread<State extends object, Actions extends object>(state: Readonly<ShallowRef<State>>, actions: ComputedRef<Actions>): Refs<State> & Actions {
  const found: Record<string, unknown> = {};
  for (const name of Object.keys(state.value) as (keyof State & string)[]) found[name] = computed(() => state.value[name]);
  for (const name of Object.keys(actions.value)) {
    found[name] = (...given: unknown[]) => (actions.value as Record<string, (...given: unknown[]) => unknown>)[name]!(...given);
  }
  return found as Refs<State> & Actions;
}
