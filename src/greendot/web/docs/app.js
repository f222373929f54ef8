// The API page: fetches both documents once and shows their entries, a table of contents, and a search.

import { $, make, prose } from "./dom.js";
import { httpEntries } from "./http.js";
import { wireEntries } from "./wire.js";

const PHONE = matchMedia("(max-width: 860px)");
let entries = [];

async function load(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function start() {
  $("menu").open = !PHONE.matches;
  PHONE.addEventListener("change", () => ($("menu").open = !PHONE.matches));
  try {
    const [http, wire] = await Promise.all([load("/openapi.json"), load("/asyncapi.json")]);
    $("version").textContent = wire.info.version;
    entries = [...wireEntries(wire), ...httpEntries(http)];
  } catch (error) {
    $("found").textContent = `The documents could not be loaded: ${error.message}. Reload the page.`;
    return;
  }
  show();
  $("needle").addEventListener("input", search);
  $("search").addEventListener("submit", (event) => (event.preventDefault(), openFirst()));
  addEventListener("hashchange", follow);
  addEventListener("keydown", shortcut);
  search();
  follow();
}

// --- entries ---

function show() {
  for (const [group, members] of grouped()) {
    const id = `group-${group.replace(/\W+/g, "-").toLowerCase()}`;
    const heading = make("h2", "", group);
    heading.id = id;
    const section = make("section", "group", heading, members.map(line));
    section.setAttribute("aria-labelledby", id);
    $("entries").append(section);
    const list = make("ul", "", members.map(linked));
    const title = make("a", "", group);
    title.href = `#${id}`;
    $("groups").append(make("div", "listed", make("h2", "", title), list));
  }
}

/** Return the entries by group, in the order of each group's first entry. */
function grouped() {
  const groups = new Map();
  for (const one of entries) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  return groups;
}

/** Create an entry. Its body is created when it is first opened. */
function line(entry) {
  const summary = make(
    "summary", "",
    make("span", `badge ${entry.badge.toLowerCase()}`, entry.badge),
    make("h3", "", make("code", "", breakable(entry.name))),
    make("span", "soft", prose(entry.summary)),
  );
  const details = make("details", "entry", summary);
  details.id = entry.id;
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make("div", "about", entry.body()));
  });
  entry.details = details;
  entry.text = `${entry.badge} ${entry.name} ${entry.summary} ${entry.words}`.toLowerCase();
  return details;
}

/** Allow line breaks in a long name after dots, slashes and underscores. */
function breakable(name) {
  return name.split(/(?<=[./_])/).flatMap((part) => [part, document.createElement("wbr")]);
}

function linked(entry) {
  const link = make("a", "", make("code", "", breakable(entry.name)));
  link.href = `#${entry.id}`;
  const method = /^[A-Z]+$/.test(entry.badge) ? make("span", "method", `${entry.badge} `) : null;
  link.prepend(method ?? "");
  link.addEventListener("click", () => PHONE.matches && ($("menu").open = false));
  entry.listed = make("li", "", link);
  return entry.listed;
}

// --- search ---

function search() {
  const words = $("needle").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const entry of entries) {
    const fits = words.every((word) => entry.text.includes(word));
    entry.details.hidden = entry.listed.hidden = !fits;
    count += fits;
  }
  for (const group of document.querySelectorAll(".group, .listed")) {
    group.hidden = !group.querySelector(".entry:not([hidden]), li:not([hidden])");
  }
  const all = `${entries.length} entries: WebSocket frames for clients and HTTP routes for backends. An id has 1 to 128 characters `
    + "of A-Z a-z 0-9 _ . @ = + -. The first is a letter, a digit or _.";
  const some = count ? `${count} of ${entries.length} entries` : "No entry matches. Try another word.";
  $("found").textContent = words.length ? some : all;
}

/** Open the best match: an entry whose name contains the text, else the first. */
function openFirst() {
  const needle = $("needle").value.trim().toLowerCase();
  const there = entries.filter((entry) => !entry.details.hidden);
  const best = there.find((entry) => entry.name.toLowerCase() === needle)
    ?? there.find((entry) => entry.name.toLowerCase().includes(needle)) ?? there[0];
  if (best) location.hash = best.id;
  if (best && location.hash === `#${best.id}`) follow();
}

/** Open the entry that the address names. */
function follow() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const entry = entries.find((one) => one.id === wanted);
  if (!entry) return;
  if (entry.details.hidden) {
    $("needle").value = "";
    search();
  }
  entry.details.open = true;
  entry.details.scrollIntoView();
  entry.details.querySelector("summary").focus({ preventScroll: true });
}

function shortcut(event) {
  const writing = event.target.closest?.("input, textarea");
  if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    $("needle").focus();
  } else if (event.key === "Escape" && writing) {
    $("needle").value = "";
    search();
  }
}

start();
