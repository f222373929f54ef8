// The people this tab knows: who they are, how they are, and the list of them.

import { hue, initials } from "./names.js";
import { ago, exact } from "./times.js";

const RANK = { online: 0, busy: 1, idle: 2, offline: 3 };
const MOST = 300; // people remembered; the first to go are those who have been away longest

/** Draw one person. `state` chooses the shape and colour of the dot, `words` are for those who see neither. */
export function drawPerson(row, { id, name, state, words, time = null, title = "" }) {
  const part = (selector) => row.querySelector(selector);
  row.dataset.state = state;
  row.style.setProperty("--hue", hue(id));
  setText(part(".initials"), initials(name));
  setText(part(".name"), name);
  part(".name").title = id;
  part(".dot").dataset.state = state;
  const line = part(".state");
  if (time === null) setText(line, words);
  else drawSeen(line, `${words} · `, time);
  line.title = title;
}

export class People {
  #list;
  #me;
  #onForget;
  #names = new Map(); // id → name as last heard, or null; in the order they were met
  #entries = new Map(); // id → presence entry
  #present = new Set(); // in the room now
  #rows = new Map(); // id → li

  constructor(list, me, onForget) {
    this.#list = list;
    this.#me = me;
    this.#onForget = onForget;
  }

  get ids() {
    return [...this.#names.keys()];
  }

  /** For the next load of the page. */
  get names() {
    return Object.fromEntries(this.#names);
  }

  get own() {
    return this.#entries.get(this.#me.id);
  }

  nameOf(id) {
    if (id === this.#me.id) return this.#me.name;
    return this.#entries.get(id)?.name ?? this.#names.get(id) ?? id;
  }

  /** Somebody is known from now on. Whether that is news. */
  meet(id, name = null) {
    if (id === this.#me.id) return false;
    const isNew = !this.#names.has(id);
    if (isNew || (name && this.#names.get(id) !== name)) this.#names.set(id, name ?? this.#names.get(id) ?? null);
    if (isNew && this.#names.size > MOST) this.#forgetOldest(id);
    return isNew;
  }

  forget(id) {
    this.#names.delete(id);
    this.#entries.delete(id);
    this.#rows.get(id)?.remove();
    this.#rows.delete(id);
    this.#onForget(id);
  }

  /** A presence entry: a snapshot is what holds now, a change counts only if it is newer. */
  heard(entry, isSnapshot) {
    // Somebody who was just forgotten may still be spoken of.
    if (entry.user !== this.#me.id && !this.#names.has(entry.user)) return;
    const known = this.#entries.get(entry.user);
    if (!isSnapshot && known && known.version > entry.version) return;
    this.#entries.set(entry.user, entry);
    if (entry.name) this.meet(entry.user, entry.name);
  }

  setPresent(ids) {
    this.#present = new Set(ids);
  }

  /** Whether somebody is in the room who was not. */
  entered(id) {
    const isNew = !this.#present.has(id);
    this.#present.add(id);
    return isNew;
  }

  /** Whether somebody was in the room who is not. */
  left(id) {
    return this.#present.delete(id);
  }

  /** Bring the list up to date; rows stay the same elements, so that focus and scrolling stay too. */
  draw() {
    const order = this.ids.sort((a, b) => this.#compare(a, b));
    order.forEach((id, place) => {
      const row = this.#row(id);
      this.#drawRow(row, id);
      if (this.#list.children[place] !== row) this.#list.insertBefore(row, this.#list.children[place] ?? null);
    });
    return order.length;
  }

  get here() {
    return this.ids.filter((id) => this.#state(id) !== "offline").length;
  }

  #state(id) {
    return this.#entries.get(id)?.state ?? "offline";
  }

  #compare(a, b) {
    const [left, right] = [this.#entries.get(a), this.#entries.get(b)];
    return (
      RANK[this.#state(a)] - RANK[this.#state(b)] ||
      (right?.last_seen ?? 0) - (left?.last_seen ?? 0) ||
      this.nameOf(a).localeCompare(this.nameOf(b))
    );
  }

  #drawRow(row, id) {
    const entry = this.#entries.get(id);
    const state = this.#state(id);
    const seen = state === "offline" ? (entry?.last_seen ?? null) : null;
    const active = entry?.mode === "poll" && entry.recently_active && "recently active";
    const words = [entry ? state : "…", entry?.status_text, active, entry?.stale && "as last known"].filter(Boolean).join(" · ");
    const since = entry?.since && state !== "offline" ? `${state} since ${exact(entry.since)}` : "";
    drawPerson(row, { id, name: this.nameOf(id), state, words, time: seen, title: since });
    row.classList.toggle("stale", Boolean(this.#entries.get(id)?.stale));
    row.querySelector("button").hidden = state !== "offline";
    row.querySelector("button").setAttribute("aria-label", `Stop watching ${this.nameOf(id)}`);
  }

  #row(id) {
    if (!this.#rows.has(id)) this.#rows.set(id, makeRow(id, () => this.forget(id)));
    return this.#rows.get(id);
  }

  #forgetOldest(except) {
    const away = this.ids.filter((id) => id !== except && !this.#present.has(id));
    const seen = (id) => (this.#state(id) === "offline" ? (this.#entries.get(id)?.last_seen ?? 0) : Infinity);
    const oldest = away.sort((a, b) => seen(a) - seen(b))[0];
    if (oldest !== undefined) this.forget(oldest);
  }
}

function makeRow(id, onForget) {
  const avatar = make("span", "avatar", make("span", "initials"), make("span", "dot"));
  avatar.setAttribute("aria-hidden", "true");
  const forget = make("button", "forget", "×");
  forget.type = "button";
  forget.title = "Stop watching";
  forget.addEventListener("click", onForget);
  const row = make("li", "person", avatar, make("p", "who", make("bdi", "name")), make("p", "state"), forget);
  row.dataset.user = id;
  return row;
}

function drawSeen(line, words, time) {
  // The element stays while the words before it do, so that its title does not vanish under the pointer.
  const isThere = line.firstChild?.data === words && line.lastChild.localName === "time";
  const seen = isThere ? line.lastChild : make("time");
  setText(seen, `last seen ${ago(time)}`);
  seen.dateTime = new Date(time).toISOString();
  seen.title = exact(time);
  if (!isThere) line.replaceChildren(words, seen);
}

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Only what differs is written: live regions speak of every write. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
