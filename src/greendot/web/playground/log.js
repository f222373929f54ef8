// List of frames and of what happened to the connection, newest last.

import { make, sample } from "./dom.js";

const MOST = 500; // older entries are removed
const COPIED_MS = 1500;
const ARROWS = { sent: "↑", received: "↓", event: "•" };
const AT_END = 40; // pixels from the end at which the list follows new entries

export class Log {
  onEdit = () => {}; // gets the text of a frame that was sent
  #root;
  #list;
  #scroll;
  #entries = []; // { element, text, direction, at, frame, isBeat, words }

  constructor(root) {
    this.#root = root;
    this.#list = root.querySelector(".frames");
    this.#scroll = root.querySelector(".scroll");
    for (const name of ["filter", "direction", "quiet"]) this.#field(name).addEventListener("input", () => this.#filter());
    this.#field("clear").addEventListener("click", () => this.clear());
    this.#field("copy").addEventListener("click", () => copy(this.#field("copy"), this.#shownText()));
    this.#filter();
  }

  focusFilter() {
    this.#field("filter").focus();
  }

  clear() {
    for (const { element } of this.#entries.splice(0)) element.remove();
    this.#filter();
  }

  /** Add a frame. `asked` is the command that it answers. */
  add(direction, text, { frame, asked, tookMs } = {}) {
    const isBeat = /^heartbeat(\.ack)?$/.test(frame?.type ?? "") || asked?.type === "heartbeat";
    const entry = { direction, text, frame, at: new Date(), isBeat };
    entry.words = `${frame?.type ?? ""} ${asked?.type ?? ""} ${text}`.toLowerCase();
    entry.element = this.#line(entry, asked, tookMs);
    this.#append(entry);
  }

  /** Add a sentence about the connection. */
  note(words) {
    const entry = { direction: "event", text: words, at: new Date(), words: words.toLowerCase() };
    const arrow = make("span", "arrow", ARROWS.event);
    entry.element = make("li", "event", time(entry.at), arrow, make("span", "gist", words));
    this.#append(entry);
  }

  #field(name) {
    return this.#root.querySelector(`[name=${name}]`);
  }

  #append(entry) {
    const follows = this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight < AT_END;
    this.#entries.push(entry);
    entry.element.hidden = !this.#fits(entry);
    this.#list.append(entry.element);
    if (this.#entries.length > MOST) this.#entries.shift().element.remove();
    this.#count();
    if (follows) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }

  #line(entry, asked, tookMs) {
    const { direction, frame, text, at } = entry;
    const arrow = make("span", "arrow", ARROWS[direction]);
    arrow.setAttribute("role", "img");
    arrow.setAttribute("aria-label", direction);
    const took = tookMs === undefined ? null : make("span", "took", `${tookMs < 10 ? tookMs.toFixed(1) : Math.round(tookMs)} ms`);
    const summary = make(
      "summary", "", time(at), arrow, make("span", "type", frame?.type ?? "text"),
      asked ? make("span", "asked", asked.type) : null, took, make("span", "gist", gist(frame, text)),
    );
    const details = make("details", "", summary);
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(this.#body(entry));
      if (details.open) details.scrollIntoView({ block: "nearest" });
    });
    return make("li", `${direction}${frame?.type === "error" ? " refused" : ""}`, details);
  }

  #body({ direction, frame, text }) {
    const pretty = frame === undefined ? text : JSON.stringify(frame, null, 2);
    const bytes = new TextEncoder().encode(text).length;
    const buttons = [button("Copy", (event) => copy(event.currentTarget, pretty))];
    if (direction === "sent") buttons.push(button("Edit", () => this.onEdit(text)));
    const acts = make("p", "acts", ...buttons, make("span", "soft", `${bytes.toLocaleString("en")} bytes`));
    return make("div", "body", sample(`Frame, ${direction}`, pretty), acts);
  }

  #fits({ direction, words, isBeat }) {
    const wanted = this.#field("direction").value;
    if (isBeat && this.#field("quiet").checked) return false;
    if (wanted && direction !== wanted) return false;
    return this.#field("filter").value.toLowerCase().split(/\s+/).every((word) => words.includes(word));
  }

  #filter() {
    for (const entry of this.#entries) entry.element.hidden = !this.#fits(entry);
    this.#count();
  }

  #count() {
    const all = this.#entries.length;
    const shown = this.#entries.filter(({ element }) => !element.hidden).length;
    const text = shown === all ? `${all} ${all === 1 ? "entry" : "entries"}` : `${shown} of ${all}`;
    this.#root.querySelector(".count").textContent = all ? text : "No frames yet";
  }

  /** Return the entries that are shown as lines of JSON. */
  #shownText() {
    const shown = this.#entries.filter(({ element }) => !element.hidden);
    return shown.map(({ at, direction, frame, text }) => JSON.stringify({ at, direction, frame: frame ?? text })).join("\n");
  }
}

function time(at) {
  const element = make("time", "", `${at.toTimeString().slice(0, 8)}.${String(at.getMilliseconds()).padStart(3, "0")}`);
  element.dateTime = at.toISOString();
  return element;
}

/** Return the most important part of a frame: an error's sentence, an answer's data, or a command's fields. */
function gist(frame, text) {
  if (typeof frame !== "object" || frame === null) return text;
  if (frame.type === "error") return `${frame.code}: ${frame.message}`;
  if ("data" in frame) return JSON.stringify(frame.data);
  const { type, ...fields } = frame;
  return Object.keys(fields).length ? JSON.stringify(fields) : "";
}

function button(label, onClick) {
  const element = make("button", "small", label);
  element.type = "button";
  element.addEventListener("click", onClick);
  return element;
}

/** Copy a text, and show the result on the button for a moment. */
async function copy(button, text) {
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = (await copied(text)) ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = label), COPIED_MS);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages of other hosts than localhost have no clipboard without TLS.
    const area = make("textarea", "unseen");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
