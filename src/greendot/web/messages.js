// What is said in the room: each message once, in its order, and below them what is still on its way.

import { hue, initials } from "./names.js";
import { make, setText } from "./people.js";
import { clock, exact } from "./times.js";

const MOST = 300; // messages kept on the page
const TOGETHER_MS = 5 * 60_000; // messages of one person within so long share a head
const NEAR_PX = 60; // this close to the end counts as being there

export class Messages {
  #list;
  #scroll;
  #newer;
  #me;
  #nameOf;
  #rows = new Map(); // seq → li
  #drafts = new Set(); // li of what is on its way; always the last ones

  constructor({ list, scroll, newer, me, nameOf, ending: signal }) {
    this.#list = list;
    this.#scroll = scroll;
    this.#newer = newer;
    this.#me = me;
    this.#nameOf = nameOf;
    scroll.addEventListener("scroll", () => this.#isAtEnd() && (newer.hidden = true), { passive: true, signal });
    newer.addEventListener("click", () => this.toEnd(), { signal });
  }

  get isEmpty() {
    return this.#rows.size === 0 && this.#drafts.size === 0;
  }

  /** Show messages, in any order and any number of times. */
  add(messages) {
    const stay = this.#isAtEnd();
    const fresh = messages.filter((message) => message.ref == null && !this.#rows.has(message.seq));
    if (!fresh.length) return;
    for (const message of fresh) this.#insert(message);
    this.#trim();
    this.#group();
    if (stay || fresh.some((message) => message.user === this.#me.id)) this.toEnd();
    else this.#newer.hidden = false;
  }

  clear() {
    for (const row of this.#rows.values()) row.remove();
    this.#rows.clear();
    this.#newer.hidden = true;
  }

  /** A message on its way. The answer has `sent` and `failed`, of which one is to be called. */
  draft(text, words) {
    const note = make("p", "note", words);
    const row = make("li", "message mine draft", make("p", "text", text), note);
    row.dataset.user = this.#me.id;
    row.dataset.text = text;
    this.#drafts.add(row);
    this.#list.append(row);
    this.toEnd();
    return {
      sent: () => this.#drop(row),
      failed: (reason) => {
        row.hidden = false;
        row.classList.add("failed");
        setText(note, `not sent: ${reason}`);
      },
    };
  }

  toEnd() {
    this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#newer.hidden = true;
  }

  #isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  #insert(message) {
    const row = makeRow(message, message.user === this.#me.id, this.#nameOf(message.user));
    const later = [...this.#list.children].find((other) => !other.dataset.seq || Number(other.dataset.seq) > message.seq);
    this.#list.insertBefore(row, later ?? null);
    this.#rows.set(message.seq, row);
    this.#hideDraft(message);
  }

  /** Our own message comes back before the answer to it: not to be seen twice in between. */
  #hideDraft(message) {
    if (message.user !== this.#me.id) return;
    const twin = [...this.#drafts].find((row) => !row.hidden && row.dataset.text === textOf(message.body));
    if (twin) twin.hidden = true;
  }

  #drop(row) {
    row.remove();
    this.#drafts.delete(row);
  }

  #trim() {
    const old = [...this.#rows.keys()].sort((a, b) => a - b).slice(0, Math.max(0, this.#rows.size - MOST));
    for (const seq of old) {
      this.#rows.get(seq).remove();
      this.#rows.delete(seq);
    }
  }

  #group() {
    let before = null;
    for (const row of this.#list.children) {
      const near = before && Number(row.dataset.at) - Number(before.dataset.at) < TOGETHER_MS;
      row.classList.toggle("more", Boolean(near && before.dataset.user === row.dataset.user));
      before = row;
    }
  }
}

function makeRow({ seq, user, name, body, at }, isMine, fallback) {
  const time = make("time", "", clock(at));
  time.dateTime = new Date(at).toISOString();
  time.title = exact(at);
  const author = isMine ? "You" : name || fallback;
  const avatar = make("span", "avatar", make("span", "initials", initials(author)));
  avatar.setAttribute("aria-hidden", "true");
  const head = make("p", "head", make("bdi", "name", author), " ", time);
  const row = make("li", `message ${isMine ? "mine" : ""}`, avatar, head, make("p", "text", textOf(body)));
  row.style.setProperty("--hue", hue(user));
  Object.assign(row.dataset, { seq, user, at });
  return row;
}

function textOf(body) {
  return typeof body?.text === "string" ? body.text : "(a message this page cannot show)";
}
