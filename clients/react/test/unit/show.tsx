// Components in StrictMode, under a client.

import { act, render, type RenderResult } from "@testing-library/react";
import { type ReactNode, StrictMode } from "react";
import { GreendotProvider } from "../../src/index.js";
import type { FakeClient } from "../../../js/test/unit/fake.js";

export { act };

export function show(client: FakeClient, children: ReactNode): RenderResult & { again(children: ReactNode): void } {
  const whole = (children: ReactNode) => (
    <StrictMode>
      <GreendotProvider client={client.it}>{children}</GreendotProvider>
    </StrictMode>
  );
  const shown = render(whole(children));
  return Object.assign(shown, { again: (children: ReactNode) => shown.rerender(whole(children)) });
}

/** What a hook gave in each render; its effects are not part of it. */
export function hookIn<Value>(client: FakeClient, use: () => Value): { values: Value[]; now: Value; unmount(): void; again(): void } {
  const values: Value[] = [];
  const Probe = () => {
    values.push(use());
    return null;
  };
  const shown = show(client, <Probe />);
  return {
    values,
    get now() {
      return values.at(-1)!;
    },
    unmount: shown.unmount,
    again: () => shown.again(<Probe />),
  };
}

/** Let promises and what React makes of them happen. */
export function settle(call: () => unknown = () => {}): Promise<void> {
  return act(async () => {
    await call();
  });
}
