// Live events, newest first, up to a fixed number of rows.

import { $, h, say } from "./dom.js";
import { clock, closeWords, number } from "./format.js";

const MOST = 300; // rows
const LABELS = { connects: "Connects", presence: "Presence", rooms: "Rooms", typing: "Typing", notifications: "Notifications", errors: "Errors" };

/** View of the events. `find` opens a user or a room. */
export class Tail {
  constructor(find) {
    this.find = find;
    this.link = null;
    this.who = null;
    this.shown = false;
    this.events = []; // newest first
    this.held = []; // received while paused
    this.paused = false;
    this.skipped = 0;
    $("needle").addEventListener("input", () => this.draw());
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("clear").addEventListener("click", () => { this.events = []; this.skipped = 0; this.draw(); });
    $("hold").addEventListener("click", () => this.hold(!this.paused));
  }

  welcome(link, who) {
    Object.assign(this, { link, who });
    const known = new Set([...$("kinds").querySelectorAll("input")].filter((input) => !input.checked).map((input) => input.value));
    $("kinds").replaceChildren($("kinds").querySelector("legend"), ...who.kinds.map((kind) => h("label", {},
      h("input", { type: "checkbox", value: kind, checked: !known.has(kind), onchange: () => this.want() }), h("span", {}, LABELS[kind]))));
    this.want();
  }

  /** Request events only while the view is visible. */
  look(shown) {
    this.shown = shown;
    this.want();
  }

  get kinds() {
    return [...$("kinds").querySelectorAll("input:checked")].map((input) => input.value);
  }

  async want() {
    if (!this.link || !this.who?.kinds.length) {
      if (this.who) say($("events-state"), "This key shows nodes only. Use a tenant’s admin key to see events.");
      return;
    }
    try {
      await this.link.ask({ type: "tail", kinds: this.shown ? this.kinds : [] });
    } catch {
      return; // requested again after the next welcome
    }
    this.draw();
  }

  hold(paused) {
    this.paused = paused;
    $("hold").setAttribute("aria-pressed", paused);
    say($("hold"), paused ? "Resume" : "Pause");
    if (!paused) {
      this.add(this.held);
      this.held = [];
    }
    this.draw();
  }

  received({ events, skipped }) {
    this.skipped += skipped;
    const newest = events.reverse();
    if (this.paused) this.held = [...newest, ...this.held].slice(0, MOST);
    else this.add(newest);
    this.draw();
  }

  add(events) {
    this.events = [...events, ...this.events].slice(0, MOST);
  }

  draw() {
    if (!this.shown) return;
    const needle = $("needle").value.trim().toLowerCase();
    const chosen = new Set(this.kinds);
    const fits = (event) => chosen.has(event.kind) && (!needle || words(event).toLowerCase().includes(needle));
    const found = this.events.filter(fits);
    $("tail").replaceChildren(...found.map((event) => this.row(event)));
    const state = [
      this.paused ? `Paused, ${number(this.held.length)} waiting` : `${number(found.length)} shown`,
      this.skipped ? `${number(this.skipped)} omitted because there were too many` : null,
      this.who?.bodies ? null : "ids only, without content",
    ];
    say($("events-state"), state.filter(Boolean).join(" · "));
    if (!found.length) {
      $("tail").append(h("li", { class: "empty" }, this.kinds.length ? "No events yet. New events appear within two seconds." : "No kind of event is selected. Select one above."));
    }
  }

  row(event) {
    const number = event.kind === "connects" && event.number ? `${event.number} ${closeWords(event.number)}` : event.number ? `#${event.number}` : null;
    const id = (what, name) => name ? h("button", { type: "button", class: "id", onclick: () => this.find.open(what, name, event.tenant) }, name) : null;
    return h("li", { "data-kind": event.kind },
      h("time", { datetime: new Date(event.at).toISOString() }, clock(event.at)),
      h("span", { class: "kind" }, LABELS[event.kind]),
      h("span", { class: "what" }, event.what),
      id("user", event.user),
      id("room", event.room),
      number ? h("span", {}, number) : null,
      event.detail ? h("span", { class: "soft" }, event.detail) : null,
      event.session ? h("code", { class: "soft" }, event.session) : null,
      this.who?.every ? h("span", { class: "soft" }, event.tenant) : null,
      event.body ? h("span", { class: "body" }, event.body) : null,
    );
  }
}

function words(event) {
  return [event.what, event.user, event.room, event.session, event.number, event.detail, event.tenant, event.node, event.body].join(" ");
}
