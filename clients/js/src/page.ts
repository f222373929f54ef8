// What the page around a client tells: network, visibility, somebody at it.

import type { Page } from "./options.js";

const SIGNS = {
  network: ["online", "offline"],
  visibility: ["visibilitychange", "pageshow"],
  activity: ["pointerdown", "pointermove", "keydown", "wheel"], // a touch is a pointer, too
  leave: ["pagehide"],
};

/** The page this runs in; null outside of one. */
export function browserPage(): Page | null {
  if (typeof document === "undefined") return null;
  return {
    isOnline: () => navigator.onLine,
    isVisible: () => document.visibilityState !== "hidden",
    on(sign, call) {
      const listener = () => call();
      // Capturing: a page that stops an event on its way must not make its reader look away.
      const how = { passive: true, capture: true };
      for (const type of SIGNS[sign]) window.addEventListener(type, listener, how);
      return () => {
        for (const type of SIGNS[sign]) window.removeEventListener(type, listener, how);
      };
    },
  };
}
