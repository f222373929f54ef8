// Mobile apps: whether the app is in the foreground, in place of the events of a page.

import type { Page } from "../index.js";

const ACTIVE_MS = 60_000; // well below the five minutes after which a user becomes idle

/** The part of `AppState` of React Native that the client uses. */
export interface AppStateLike {
  /** `active` in the foreground; any other value is the background. */
  readonly currentState: string | null | undefined;
  addEventListener(type: "change", listener: (state: any) => void): { remove(): void };
}

/**
 * Return the option `page` for an app without a document. In the foreground the user counts as active: an unused device
 * locks its screen, and the app is in the background then. In the background there is no activity. When the app returns to
 * the foreground, the client checks its connection at once.
 */
export function appStatePage(appState: AppStateLike): Page {
  const isActive = () => appState.currentState === "active";
  return {
    isOnline: () => true, // not known: attempts are made as usual
    isVisible: isActive,
    on(sign, call) {
      if (sign === "network") return () => {};
      let timer: ReturnType<typeof setInterval> | undefined;
      const time = () => {
        clearInterval(timer);
        if (sign === "activity" && isActive()) timer = setInterval(call, ACTIVE_MS);
      };
      const changed = () => {
        time();
        if (sign === "visibility" || (sign === "leave" && !isActive())) call();
      };
      time();
      const subscription = appState.addEventListener("change", changed);
      return () => {
        clearInterval(timer);
        subscription.remove();
      };
    },
  };
}
