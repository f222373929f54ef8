// The user's status: automatic, busy (until …) or invisible, with a note. It is the same on all devices.

import { $ } from "./dom.js";
import { drawWho } from "./person.js";
import { hour, now } from "./times.js";

const SECOND_MS = 1_000;

export class StatusView {
  #me;
  #client;
  #people;
  #form = $("status");
  #wanted = null; // the status being set
  #complain;
  #ending = new AbortController();

  constructor({ me, client, people, complain }) {
    this.#me = me;
    this.#client = client;
    this.#people = people;
    this.#complain = complain;
    const { signal } = this.#ending;
    this.#form.addEventListener("change", (event) => this.#changed(event.target), { signal });
    this.#form.addEventListener("submit", (event) => (event.preventDefault(), this.#set()), { signal });
  }

  close() {
    this.#ending.abort();
    this.#form.reset();
  }

  draw() {
    const { own } = this.#people;
    const isLive = this.#client.state === "online";
    const status = this.#wanted ?? own?.status ?? "auto";
    const isInvisible = own?.status === "invisible";
    const state = !isLive || !own ? "offline" : isInvisible ? "invisible" : own.state;
    drawWho($("me"), { ...this.#me, info: own?.info, state, words: words(isLive, own) });
    this.#form.firstElementChild.disabled = !isLive;
    this.#form.elements.status.value = status;
    $("until").hidden = status === "auto";
    const note = this.#form.elements.note;
    if (document.activeElement !== note && this.#wanted === null) note.value = shownNote(own);
  }

  /** Set the status: a choice at once, the note when its field is left. */
  #changed(field) {
    if (field.name === "status" && field.value === "auto") this.#form.elements.until.value = "";
    if (field.name !== "note" || field.value !== shownNote(this.#people.own)) this.#set();
  }

  async #set() {
    const { status, until, note } = this.#form.elements;
    const ends = status.value === "auto" || !until.value ? null : now() + Number(until.value) * SECOND_MS;
    const wanted = (this.#wanted = status.value);
    this.draw();
    try {
      await this.#client.status.set({ status: wanted, until: ends, text: textFor(wanted, note.value.trim(), ends) });
    } catch (error) {
      this.#complain(`Your status could not be set: ${error.message}`);
    }
    if (this.#wanted === wanted) this.#wanted = null;
    this.draw();
  }
}

const UNTIL = /^until \S+( [AP]M)?( · |$)/i;

/** Return the text of the status. Other users do not receive the end of a status, so the text names it. */
function textFor(status, note, ends) {
  const until = status === "busy" && ends ? `until ${hour(ends)}` : "";
  return [until, note.replace(UNTIL, "")].filter(Boolean).join(" · ") || null; // a long note is cut, not the time
}

/** Return the note that the user wrote. */
function shownNote(own) {
  return own?.status_text?.replace(UNTIL, "") ?? "";
}

function words(isLive, own) {
  if (!isLive) return "not connected";
  if (!own) return "…";
  const until = own.until ? ` until ${hour(own.until)}` : "";
  if (own.status === "invisible") return `invisible${until}: others see you offline`;
  return [own.status === "busy" ? `busy${until}` : own.state, shownNote(own)].filter(Boolean).join(" · ");
}
