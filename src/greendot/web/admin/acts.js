// What can be done: the server says in a sentence what would happen, a person agrees, then it is done.

import { $, say } from "./dom.js";

const YES = { disconnect: "Disconnect", revoke: "Revoke", notify: "Send notification" };
let fading;

/** Ask for it, and do it if it is agreed to. True when it was done. */
export async function act(link, command) {
  let offer;
  try {
    offer = await link.ask({ type: "act", ...command });
  } catch (error) {
    tell(error.message, true);
    return false;
  }
  if (!(await agreed(offer))) return false;
  try {
    tell(`Done: ${(await link.ask({ type: "confirm", number: offer.number })).done}.`);
    return true;
  } catch (error) {
    tell(error.message, true);
    return false;
  }
}

function agreed({ title, says, do: what }) {
  const dialog = $("ask");
  say($("ask-title"), title);
  say($("ask-says"), says);
  say($("ask-yes"), YES[what]);
  $("ask-yes").className = what === "notify" ? "primary" : "danger";
  dialog.returnValue = "no";
  dialog.showModal();
  $("ask-no").focus(); // a key pressed too often must not do it
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** A word at the foot of the page. */
export function tell(text, wrong = false) {
  const toast = $("toast");
  toast.hidden = false;
  toast.classList.toggle("wrong", wrong);
  say(toast, text);
  clearTimeout(fading);
  fading = setTimeout(() => { toast.hidden = true; }, 8000);
}
