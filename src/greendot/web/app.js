// The demo: a form for the name, then one screen of rooms and people.

import { $ } from "./dom.js";
import { cleanName, idFor, idWanted } from "./names.js";
import { recall, remember } from "./store.js";
import { Screen } from "./screen.js";

const NAME_HINT = $("name-hint").textContent;
// The server's defaults, used if it does not answer.
const PERIODS = { heartbeat_s: 30, dead_after_s: 75, grace_s: 30, clean_grace_s: 5, silent_grace_s: 15, idle_s: 300 };
const periods = Object.assign({}, PERIODS);
let screen = null;

function enter(name) {
  const me = { id: idFor(name), name };
  remember("name", name);
  document.title = `${name} · Greendot`;
  $("door").hidden = true;
  $("app").hidden = false;
  screen = new Screen(me, periods, () => again(name));
  screen.start();
  // On a phone the focus would open the keyboard, which covers the page.
  if (matchMedia("(hover: hover)").matches) screen.focus();
}

/** Start again with a new token and a new list of rooms. */
function again(name) {
  screen?.close();
  enter(name);
}

function leave() {
  screen?.close();
  screen = null;
  remember("name", null);
  document.title = "Greendot";
  $("app").hidden = true;
  showDoor();
}

function showDoor() {
  $("door").hidden = false;
  hint($("name").value);
  $("name").focus();
}

function hint(typed, complain = false) {
  const id = idFor(typed);
  const missing = complain && !id;
  $("name").setAttribute("aria-invalid", String(missing));
  $("name-hint").classList.toggle("wrong", missing);
  $("name-hint").textContent = id ? `Your id will be ${id}` : missing ? "Enter a name. You can choose any name." : NAME_HINT;
}

$("name").addEventListener("input", () => hint($("name").value));
$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = cleanName($("name").value);
  if (name) {
    enter(name);
  } else {
    hint("", true);
    $("name").focus();
  }
});
$("leave").addEventListener("click", leave);

$("watch").addEventListener("submit", (event) => {
  event.preventDefault();
  const typed = $("watched").value;
  const id = idWanted(typed);
  if (!id || !screen) {
    $("watched").setCustomValidity("Enter a name, or @ and an id.");
    $("watched").reportValidity();
    return;
  }
  screen.watch(id, typed.trim().startsWith("@") ? null : cleanName(typed));
  $("watched").value = "";
});
$("watched").addEventListener("input", () => $("watched").setCustomValidity(""));

fetch("dev/periods")
  .then((answer) => answer.json())
  .then((given) => Object.assign(periods, given))
  .catch(() => {}); // texts about an outage then use the defaults

const name = recall("name");
if (typeof name === "string" && cleanName(name)) enter(cleanName(name));
else showDoor();
