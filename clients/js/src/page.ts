// What the page around a client tells: network, visibility, somebody at it.

import type { Page, Undo } from "./options.js";

const ACTIVITY = ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"];

/** The page this runs in; null outside of one. */
export function browserPage(): Page | null {
  if (typeof window === "undefined" || typeof document === "undefined" || !window.addEventListener) return null;
  const isVisible = () => document.visibilityState !== "hidden";
  return {
    isOnline: () => navigator.onLine !== false,
    isVisible,
    onOnline(call) {
      const undoOnline = listen(window, ["online"], () => call(true));
      const undoOffline = listen(window, ["offline"], () => call(false));
      return () => (undoOnline(), undoOffline());
    },
    onVisible(call) {
      const undoVisible = listen(document, ["visibilitychange"], () => call(isVisible()));
      const undoShown = listen(window, ["pageshow", "focus"], () => call(isVisible()));
      return () => (undoVisible(), undoShown());
    },
    onActivity: (call) => listen(window, ACTIVITY, call),
    onLeave: (call) => listen(window, ["pagehide"], call),
  };
}

function listen(target: EventTarget, types: string[], call: () => void): Undo {
  const listener = () => call();
  // Capturing: a page that stops an event on its way must not make its reader look away.
  const how = { passive: true, capture: true };
  for (const type of types) target.addEventListener(type, listener, how);
  return () => {
    for (const type of types) target.removeEventListener(type, listener, how);
  };
}
