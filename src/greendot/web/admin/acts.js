// Actions. The server describes the effect, the viewer confirms, and the server runs the action.

import { $, say } from "./dom.js";

const YES = {
  disconnect: "Disconnect",
  revoke: "Revoke",
  notify: "Send notification",
  mute: "Mute",
  unmute: "End mute",
  ban: "Ban",
  unban: "End ban",
  archive: "Archive",
  unarchive: "Reopen",
  delete: "Delete",
};
const HARMLESS = new Set(["notify", "unmute", "unban", "unarchive"]);
let fading;

/** Request an action and confirm it if the viewer agrees. Resolves to true when the action was done. */
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
  $("ask-yes").className = HARMLESS.has(what) ? "primary" : "danger";
  dialog.returnValue = "no";
  dialog.showModal();
  $("ask-no").focus(); // a repeated key press must not confirm the action
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Show a message at the bottom of the page. */
export function tell(text, wrong = false) {
  const toast = $("toast");
  toast.hidden = false;
  toast.classList.toggle("wrong", wrong);
  say(toast, text);
  clearTimeout(fading);
  fading = setTimeout(() => { toast.hidden = true; }, 8000);
}
