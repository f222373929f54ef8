// Short messages at the bottom of the page, above all panels: on a phone the list of people covers the room.

import { $, setText } from "./dom.js";

const SHOWN_MS = 6_000;
let hiding = null;

/** Show a message for a few seconds. */
export function say(words) {
  setText($("said"), words);
  $("said").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(hush, SHOWN_MS);
}

export function hush() {
  $("said").hidden = true;
}
