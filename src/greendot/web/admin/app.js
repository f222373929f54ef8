// The dashboard: sign-in with a key, the socket, and three views.

import { $, say } from "./dom.js";
import { Find } from "./find.js";
import { History } from "./history.js";
import { showJobs } from "./jobs.js";
import { Link } from "./link.js";
import { showNodes } from "./nodes.js";
import { Panels } from "./panels.js";
import { Tail } from "./tail.js";

const KEPT_KEY = "greendot.admin.key";
const VIEWS = ["overview", "find", "events"]; // a view's name is in the address
const DOTS = { open: "online", connecting: "idle", lost: "busy", refused: "offline" };

const find = new Find();
const tail = new Tail(find);
let link = null;
let history = new History();
let panels = null;
let shownFor = null; // the kind of key that the panels were made for
let paused = false;
let seconds = 300;

// --- sign-in form ---

function openDoor(words = "") {
  sessionStorage.removeItem(KEPT_KEY);
  $("app").hidden = true;
  $("door").hidden = false;
  $("key").value = "";
  $("key").setAttribute("aria-invalid", words ? "true" : "false");
  $("key-hint").classList.toggle("wrong", Boolean(words));
  say($("key-hint"), words || "Kept in this tab only, until you close it or sign out.");
  $("key").focus();
}

function enter(key) {
  link?.close();
  history = new History();
  shownFor = null;
  let welcomed = false;
  link = new Link(key, heard, (state, words) => {
    if (state === "refused") {
      openDoor(`${words.charAt(0).toUpperCase()}${words.slice(1)}.`);
      return;
    }
    if (state === "open" && !welcomed) {
      welcomed = true;
      sessionStorage.setItem(KEPT_KEY, key);
      $("door").hidden = true;
      $("app").hidden = false;
      route();
    }
    $("link-dot").dataset.state = DOTS[state];
    say($("link"), state === "open" ? "Live" : state === "lost" ? "Not connected" : "Connecting…");
    const notice = $("door").hidden ? $("notice") : $("key-hint");
    $("notice").hidden = state !== "lost";
    if (state === "lost") say(notice, words);
  });
}

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (!key) {
    openDoor("Enter an admin key.");
    return;
  }
  say($("key-hint"), "Checking the key…");
  enter(key);
});
$("leave").addEventListener("click", () => {
  link?.close();
  link = null;
  openDoor();
});

// --- frames from the server ---

function heard(type, data, ts) {
  if (type === "welcome") welcome(data);
  else if (type === "tail") tail.received(data);
  else if (type === "sample") {
    history.add(ts, data);
    if (paused) return;
    panels.show(history, seconds);
    showNodes(data.nodes, ts);
    showJobs(data.jobs, ts);
  }
}

function welcome(who) {
  const kind = who.nodes ? "nodes" : who.tenant;
  if (kind !== shownFor) {
    shownFor = kind;
    panels = new Panels(who.nodes);
  }
  const tenants = who.every ? "all tenants" : who.tenant ? `tenant ${who.tenant}` : "no tenants";
  say($("who"), `${who.key}: ${tenants}`);
  say($("scope"), `${who.nodes ? "all nodes" : `${tenants}, on all nodes`}, with the key ${who.key}`);
  showNodes(who.nodes ? [] : null, 0);
  showJobs(null, 0);
  backfill(link, history);
  find.welcome(link, who);
  tail.welcome(link, who);
}

/** Fill the plots with the server's history: the page may have been opened a moment ago, or was disconnected. */
async function backfill(from, into) {
  try {
    into.fill(await from.ask({ type: "history" }));
    if (into === history && !paused) panels.show(history, seconds);
  } catch {
    // An older server has no history, or the connection was lost. The plots fill with the time.
  }
}

// --- views ---

function route() {
  const view = VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "overview";
  for (const name of VIEWS) {
    $(name).hidden = name !== view;
    const there = document.querySelector(`nav a[href="#${name}"]`);
    if (name === view) there.setAttribute("aria-current", "page");
    else there.removeAttribute("aria-current");
    if (name === view) document.title = `${there.textContent} · Greendot dashboard`;
  }
  tail.look(view === "events");
  find.show(view === "find");
}
addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
});

$("window").addEventListener("change", (event) => {
  seconds = Number(event.target.value);
  panels?.show(history, seconds);
});
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  say($("pause"), paused ? "Resume" : "Pause");
});

const kept = sessionStorage.getItem(KEPT_KEY);
if (kept) enter(kept);
else openDoor();
