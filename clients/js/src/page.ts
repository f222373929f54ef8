// Events of the page around a client: network, visibility, activity of the user.

import type { Page } from "./options.js";

const SIGNS = {
  network: ["online", "offline"],
  visibility: ["visibilitychange", "pageshow"],
  activity: ["pointerdown", "pointermove", "keydown", "wheel"], // a touch fires pointer events too
  leave: ["pagehide"],
};

/** Return the page that runs this code, or null outside of a page. */
export function browserPage(): Page | null {
  if (typeof document === "undefined") return null;
  return {
    isOnline: () => navigator.onLine,
    isVisible: () => !document.hidden,
    on(sign, call) {
      const listener = () => call();
      // Capturing: activity counts even if the page stops the propagation of the event.
      const how = { passive: true, capture: true };
      for (const type of SIGNS[sign]) window.addEventListener(type, listener, how);
      return () => {
        for (const type of SIGNS[sign]) window.removeEventListener(type, listener, how);
      };
    },
  };
}
