// Who is typing, both ways: what others do, and what they are told of us.

import { setText } from "./people.js";

const REPEAT_MS = 3_000; // a start is said at most so often
const SLACK_MS = 1_000; // on top of the time a start holds, so that a repetition in time never shows a gap

/** The line that says who is typing. Whoever is not heard of again is gone when the time is up. */
export class TypingLine {
  #element;
  #nameOf;
  #typers = new Map(); // user → timer
  #count = 0; // in large rooms names are not sent
  #countTimer = null;

  constructor(element, nameOf) {
    this.#element = element;
    this.#nameOf = nameOf;
  }

  started({ user, expires_in_ms: ms }) {
    clearTimeout(this.#typers.get(user));
    const timer = setTimeout(() => this.stopped({ user }), ms + SLACK_MS);
    this.#typers.set(user, timer);
    this.#draw();
  }

  stopped({ user }) {
    clearTimeout(this.#typers.get(user));
    if (this.#typers.delete(user)) this.#draw();
  }

  counted({ count, expires_in_ms: ms }) {
    clearTimeout(this.#countTimer);
    this.#count = count;
    this.#countTimer = setTimeout(() => this.counted({ count: 0, expires_in_ms: 0 }), ms + SLACK_MS);
    if (count === 0) clearTimeout(this.#countTimer);
    this.#draw();
  }

  clear() {
    for (const user of [...this.#typers.keys()]) this.stopped({ user });
    this.counted({ count: 0, expires_in_ms: 0 });
  }

  #draw() {
    setText(this.#element, typingWords([...this.#typers.keys()].map(this.#nameOf), this.#count));
  }
}

export function typingWords(names, count) {
  const all = Math.max(names.length, count);
  if (all === 0) return "";
  if (all > 2) return "several people are typing…";
  if (names.length < all) return all === 1 ? "someone is typing…" : "two people are typing…";
  return all === 1 ? `${names[0]} is typing…` : `${names[0]} and ${names[1]} are typing…`;
}

/** Tells the room that the field is being typed in. */
export class TypingSignal {
  #tell; // (type) → whether it was said
  #startedAt = -Infinity;
  #isTyping = false; // as far as the room was told
  #timer = null;

  constructor(tell) {
    this.#tell = tell;
  }

  edited(text) {
    clearTimeout(this.#timer);
    if (text.trim() === "") {
      if (this.#isTyping) this.#tell("typing.stop");
      this.#isTyping = false;
      return;
    }
    const wait = this.#startedAt + REPEAT_MS - performance.now();
    if (wait <= 0) this.#start();
    // The next message was begun too soon after the last start: the room hears of it as soon as it may.
    else if (!this.#isTyping) this.#timer = setTimeout(() => this.#start(), wait);
  }

  /** The message itself says that the typing is over. */
  sent() {
    clearTimeout(this.#timer);
    this.#isTyping = false;
  }

  #start() {
    if (!this.#tell("typing.start")) return;
    this.#startedAt = performance.now();
    this.#isTyping = true;
  }
}
