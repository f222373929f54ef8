// The playground: one or two sessions that send frames and show all frames. Commands come from /asyncapi.json.
//
//   /playground?user=alice&second=bob#room.send    chooses the users and the command

import { $ } from "./dom.js";
import { Panel } from "./panel.js";
import { Schemas } from "./schema.js";

const WIDE = 1000; // pixels from which two sessions fit side by side, as in the stylesheet
const panels = [];

async function start() {
  let document;
  try {
    document = await load("/asyncapi.json");
  } catch (error) {
    $("fault").textContent = `The commands could not be loaded: ${error.message}. The playground needs api.docs = true.`;
    $("fault").hidden = false;
    return;
  }
  $("version").textContent = document.info.version;
  const query = new URLSearchParams(location.search);
  const wire = { document, schemas: new Schemas(document.components.schemas) };
  const command = decodeURIComponent(location.hash.slice(1));
  for (const [title, user] of [["First session", query.get("user") ?? "alice"], ["Second session", query.get("second") ?? "bob"]]) {
    const panel = new Panel(wire, { title, user, command });
    panels.push(panel);
    $("sessions").append(panel.root);
  }
  showSecond(query.has("second") || innerWidth >= WIDE);
  $("two").addEventListener("click", () => showSecond(panels[1].root.hidden));
  addEventListener("hashchange", () => panels.forEach((one) => one.choose(decodeURIComponent(location.hash.slice(1)))));
  addEventListener("keydown", shortcut);
  panels[0].focus();
}

async function load(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

function showSecond(shown) {
  panels[1].root.hidden = !shown;
  if (!shown) panels[1].disconnect();
  $("two").setAttribute("aria-pressed", String(shown));
  $("sessions").classList.toggle("both", shown);
}

function shortcut(event) {
  const isWriting = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const inside = panels.find((one) => one.root.contains(document.activeElement));
  (inside ?? panels[0]).focusFilter();
}

start();
