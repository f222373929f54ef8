// The page: a name at the door, then one screen of people and one room.

import { cleanName, idFor, idWanted, randomId } from "./names.js";
import { recall, remember } from "./store.js";
import { Screen } from "./screen.js";

const $ = (id) => document.getElementById(id);
const NAME_HINT = $("name-hint").textContent;
let screen = null;

function enter(name) {
  const me = { id: idFor(name), name };
  remember("name", name);
  document.title = `${name} · Greendot`;
  $("door").hidden = true;
  $("app").hidden = false;
  screen = new Screen(me, device());
  screen.start();
  // On a phone focus would bring up the keyboard and cover what there is to see.
  if (matchMedia("(hover: hover)").matches) $("text").focus();
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
  $("name-hint").textContent = id ? `Your id will be ${id}` : missing ? "Type a name first. Any will do." : NAME_HINT;
}

/** One device per tab: a reload is the same device coming back, a second tab is another one. */
function device() {
  const known = recall("device") ?? `web-${randomId()}`;
  remember("device", known);
  return known;
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
    $("watched").setCustomValidity("Type a name, or @ and an id.");
    $("watched").reportValidity();
    return;
  }
  screen.watch(id, typed.trim().startsWith("@") ? null : cleanName(typed));
  $("watched").value = "";
});
$("watched").addEventListener("input", () => $("watched").setCustomValidity(""));

$("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text || !screen) return;
  $("text").value = "";
  screen.say(text);
});
$("text").addEventListener("input", () => screen?.edited($("text").value));

$("status").addEventListener("change", (event) => screen?.setStatus(event.target.value));
$("retry").addEventListener("click", () => screen?.connect());

for (const sign of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(sign, () => screen?.active(), { passive: true });
}
for (const sign of ["online", "pageshow", "focus"]) addEventListener(sign, () => screen?.wake());
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && screen?.wake());

const name = recall("name");
if (typeof name === "string" && cleanName(name)) enter(cleanName(name));
else showDoor();
