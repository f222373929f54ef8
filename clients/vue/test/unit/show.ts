// Components under a client, and the values of a composable.

import { type App, createApp, defineComponent, h, nextTick, type VNode } from "vue";
import type { FakeClient } from "../../../js/test/unit/fake.js";
import { GreendotProvider } from "../../src/index.js";

const apps: App[] = [];

/** Mount a component and return its element. Problems that Vue finds fail the test. */
export function mount(component: object, root: Element = document.createElement("div")): { app: App; element: Element } {
  const app = createApp(component);
  app.config.warnHandler = (text) => {
    throw new Error(text);
  };
  app.mount(root);
  apps.push(app);
  return { app, element: root };
}

/** Unmount the apps of one test. */
export function reset(): void {
  for (const app of apps.splice(0)) app.unmount();
}

/** Render the nodes under a provider. `render` may read refs. */
export function show(client: FakeClient, render: () => VNode | VNode[] | null): { app: App; element: Element } {
  return mount(() => h(GreendotProvider, { client: client.it }, render));
}

/** Return the result of a composable in a component. */
export function composed<Result>(client: FakeClient, use: () => Result): { result: Result; app: App } {
  const found: { result?: Result } = {};
  const Probe = defineComponent(() => {
    found.result = use();
    return () => null;
  });
  const { app } = show(client, () => h(Probe));
  return { result: found.result!, app };
}

/** Let promises, and the renders that follow, happen. */
export async function settle(call: () => unknown = () => {}): Promise<void> {
  await call();
  await new Promise((resolve) => setTimeout(resolve));
  await nextTick();
}
