// Mobile apps: the client learns from `AppState` whether the app is in the foreground. A web page has events instead of `AppState`.

import type { Page } from "../index.js";

const ACTIVE_MS = 60_000; // well below the time after which a user becomes idle: by default five minutes

/** The members of React Native's `AppState` that the client uses. */
export interface AppStateLike {
  /** `active` while the app is in the foreground; any other value while the app is in the background. */
  readonly currentState: string | null | undefined;
  addEventListener(type: "change", listener: (state: any) => void): { remove(): void };
}

/**
 * Return a value for the option `page` of a client in a mobile app. While the app is in the foreground, the client reports
 * that the user is active. While the app is in the background, the client reports no activity, and the user becomes idle after
 * some time (by default five minutes). When the app returns to the foreground, the client checks its connection at once.
 */
export function appStatePage(appState: AppStateLike): Page {
  const isActive = () => appState.currentState === "active";
  return {
    isOnline: () => true, // not known, so the client makes attempts as usual
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
