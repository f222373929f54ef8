// Provider of the client for the components below it.

import type { Greendot, GreendotOptions } from "@greendot/client";
import { createClient, hold } from "@greendot/client/stores";
import {
  type App,
  defineComponent,
  getCurrentInstance,
  hasInjectionContext,
  inject,
  type InjectionKey,
  markRaw,
  onMounted,
  onScopeDispose,
  type PropType,
  provide,
} from "vue";

export type GreendotSource =
  | {
      /** Your own client. You connect and close it. */
      client: Greendot;
      options?: undefined;
    }
  | {
      /** Options of a client that is created here, connected while the component or app is mounted, and closed afterwards. */
      options: GreendotOptions;
      client?: undefined;
    };

const KEY: InjectionKey<Greendot> = Symbol("greendot");
const own = new WeakMap<object, Greendot>(); // clients that components provide, because `inject` skips the component itself

function clientOf({ client, options }: { client?: Greendot | undefined; options?: GreendotOptions | undefined }, where: string): Greendot {
  if (!client && !options) throw new Error(`${where} needs \`client\` or \`options\``);
  return markRaw(client ?? createClient(options!));
}

/** Provide a client to this component and those below it. For another user, give the component another `key`. */
export function provideGreendot(source: GreendotSource): Greendot {
  const client = clientOf(source, "provideGreendot()");
  provide(KEY, client);
  own.set(getCurrentInstance()!, client);
  if (!source.client) {
    let undo = () => {};
    onMounted(() => (undo = hold(client)));
    onScopeDispose(() => undo());
  }
  return client;
}

/** Component that provides a client to its slot. */
export const GreendotProvider = defineComponent({
  name: "GreendotProvider",
  props: { client: Object as PropType<Greendot>, options: Object as PropType<GreendotOptions> },
  setup(props, { slots }) {
    provideGreendot(props as GreendotSource);
    return () => slots.default?.();
  },
});

/** Plugin that provides a client to a whole app: `app.use(greendot, { options })`. */
export const greendot = {
  install(app: App, source: GreendotSource): void {
    const client = clientOf(source ?? {}, "app.use(greendot, …)");
    app.provide(KEY, client);
    if (source.client) return;
    // A server renders the app without mounting it.
    const { mount, unmount } = app;
    let undo = () => {};
    app.mount = (...where) => {
      const root = mount(...where);
      undo = hold(client);
      return root;
    };
    app.unmount = () => {
      unmount();
      undo();
    };
  },
};

/** Return the client of this component or of the nearest provider. During server rendering it never connects. */
export function useGreendot(): Greendot {
  const instance = getCurrentInstance();
  const client = (instance && own.get(instance)) ?? (hasInjectionContext() ? inject(KEY, null) : null);
  if (!client) throw new Error("no Greendot client: call provideGreendot() in a component above, or app.use(greendot, { options })");
  return client;
}
