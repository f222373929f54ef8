// Row of a user in the list: dot, name and state. Opened, it shows details and actions.

import { button, icon, make, setText } from "./dom.js";
import { avatarOf } from "./names.js";
import { ago, agoNext, clock, exact, now } from "./times.js";

const DEVICES = { web: "browser", phone: "phone", laptop: "laptop", js: "program", py: "program" };

/** Return the kind of a device (“phone” for phone-3fa2c1), or its name if the kind is unknown. */
export function deviceName(device) {
  return DEVICES[device.split("-")[0]] ?? device;
}

/** Draw a user. `state` sets the shape and colour of the dot; `words` is the state as text. */
export function drawWho(row, { id, name, info, state, words }) {
  row.dataset.state = state;
  const { hue, letters } = avatarOf(id, name, info);
  row.style.setProperty("--hue", hue);
  setText(row.querySelector(".initials"), letters);
  setText(row.querySelector(".name"), name);
  row.querySelector(".dot").dataset.state = state;
  setText(row.querySelector(".state"), words);
}

export class PersonRow {
  element;
  press; // the button that opens the details
  #id;
  #does;
  #more;
  #dueAt = 0; // time when the “last seen” text changes
  #shown = null; // values drawn last

  /** `does` has `opened`, `forget` and `notify`. */
  constructor(id, does) {
    this.#id = id;
    this.#does = does;
    const avatar = make("span", "avatar", make("span", "initials"), make("span", "dot"));
    avatar.setAttribute("aria-hidden", "true");
    const devices = make("span", "devices");
    const words = make("span", "words", make("bdi", "name"), make("span", "state"));
    this.press = button("row", "", () => this.#toggle());
    this.press.append(avatar, words, devices);
    this.press.setAttribute("aria-expanded", "false");
    this.#more = make("div", "more");
    this.#more.hidden = true;
    this.element = make("li", "person", this.press, this.#more);
    this.element.dataset.user = id;
  }

  /** Return whether the “last seen” text is out of date. */
  get isDue() {
    return now() >= this.#dueAt;
  }

  draw(name, entry, devices) {
    this.#shown = { name, entry, devices };
    const state = entry?.state ?? "offline";
    const seen = state === "offline" ? (entry?.last_seen ?? null) : null;
    this.#dueAt = seen === null ? Infinity : now() + agoNext(seen);
    const active = entry?.mode === "poll" && entry.recently_active && "recently active";
    const stands = seen !== null ? `last seen ${ago(seen)}` : entry ? state : "…";
    const words = [stands, entry?.status_text, active, entry?.stale && "as last known"].filter(Boolean).join(" · ");
    drawWho(this.element, { id: this.#id, name, info: entry?.info, state, words });
    this.element.classList.toggle("stale", Boolean(entry?.stale));
    this.#drawDevices(devices);
    if (!this.#more.hidden) this.#drawMore();
  }

  #drawDevices(devices) {
    const kinds = [...new Set(devices.map(deviceName))].sort();
    const place = this.press.querySelector(".devices");
    if (place.dataset.kinds === kinds.join()) return;
    place.dataset.kinds = kinds.join();
    const drawings = kinds.map((kind) => icon(kind === "phone" ? "phone" : "screen"));
    place.replaceChildren(...drawings, make("span", "unseen", kinds.length ? `on ${kinds.join(" and ")}` : ""));
  }

  #toggle() {
    const open = this.#more.hidden;
    this.#more.hidden = !open;
    this.element.classList.toggle("open", open);
    this.press.setAttribute("aria-expanded", String(open));
    if (!open) return;
    this.#drawMore();
    this.#does.opened();
  }

  #drawMore() {
    const { name, entry, devices } = this.#shown;
    const facts = this.#facts(entry, devices);
    const known = this.#more.querySelector("dl");
    if (known) return known.replaceChildren(...facts);
    const does = make("p", "line", button("small", "Notify", () => this.#does.notify()));
    const forget = button("small", "Stop watching", () => this.#does.forget());
    forget.setAttribute("aria-label", `Stop watching ${name}`);
    does.firstChild.setAttribute("aria-label", `Notify ${name}`);
    does.append(forget);
    this.#more.replaceChildren(make("dl", "", ...facts), does);
  }

  #facts(entry, devices) {
    const facts = [["Id", this.#id]];
    if (entry?.last_seen) facts.push(["Last seen", exact(entry.last_seen)]);
    else if (entry?.since && entry.state !== "offline") facts.push([entry.state, `since ${clock(entry.since)}`]);
    if (entry?.status_text) facts.push(["Note", entry.status_text]);
    const kinds = devices.map(deviceName).sort();
    if (kinds.length) facts.push([kinds.length === 1 ? "Device" : "Devices", kinds.join(", ")]);
    return facts.flatMap(([term, fact]) => [make("dt", "", term), make("dd", "", fact)]);
  }
}
