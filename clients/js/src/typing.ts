// Who is typing, both ways: what others do, and what they are told of us.

import type { Clock } from "./clock.js";
import type { Undo } from "./options.js";
import type { Typer, TypingTimes } from "./wire.js";

const SLACK_MS = 1_000; // a repeated start may be late by so much before the typer seems to stop
const EARLY_MS = 100; // a start that travels faster than the one before must not fall within the server's throttle
/** For a server that does not send any. */
export const TYPING: TypingTimes = { repeat_ms: 3_000, hold_ms: 5_000, throttle_ms: 2_000 };

/** Those who type in a room, each until their time is over, whether or not anything more is heard of them. */
export class Typists {
  #ends = new Map<string, { typer: Typer; undo: Undo }>();
  #count = 0; // in large rooms names are not sent
  #countEnd: Undo = () => {};
  #clock: Clock;
  #changed: () => void;

  constructor(clock: Clock, changed: () => void) {
    this.#clock = clock;
    this.#changed = changed;
  }

  /** Who began first comes first. */
  get typers(): Typer[] {
    return [...this.#ends.values()].map(({ typer }) => typer);
  }

  get count(): number {
    return Math.max(this.#count, this.#ends.size);
  }

  started({ user, name }: Typer, expiresInMs: number): void {
    const known = this.#ends.get(user);
    known?.undo();
    const undo = this.#clock.after(expiresInMs + SLACK_MS, () => this.stopped(user));
    this.#ends.set(user, { typer: known?.typer ?? { user, name }, undo });
    if (!known) this.#changed();
  }

  stopped(user: string): void {
    this.#ends.get(user)?.undo();
    if (this.#ends.delete(user)) this.#changed();
  }

  counted(count: number, expiresInMs: number): void {
    this.#countEnd();
    this.#countEnd = count ? this.#clock.after(expiresInMs + SLACK_MS, () => this.counted(0, 0)) : () => {};
    const changed = count !== this.#count;
    this.#count = count;
    if (changed) this.#changed();
  }

  clear(): void {
    for (const user of [...this.#ends.keys()]) this.stopped(user);
    this.counted(0, 0);
  }
}

/** Tells a room that we type: called with every keystroke, says what is to be said. */
export class Keystrokes {
  #say: (type: "typing.start" | "typing.stop") => boolean;
  #clock: Clock;
  #times: () => TypingTimes;
  #startedAt = -Infinity;
  #holds = false; // as far as the room was told, we are typing
  #later: Undo = () => {};

  constructor(clock: Clock, say: (type: "typing.start" | "typing.stop") => boolean, times: () => TypingTimes) {
    this.#clock = clock;
    this.#say = say;
    this.#times = times;
  }

  typing(isTyping: boolean): void {
    this.#later();
    if (!isTyping) {
      if (this.#holds) this.#say("typing.stop");
      this.#holds = false;
      return;
    }
    const { repeat_ms, throttle_ms } = this.#times();
    const wait = this.#startedAt + (this.#holds ? repeat_ms : throttle_ms + EARLY_MS) - this.#clock.now();
    if (wait <= 0) this.#start();
    // Begun again too soon after the last start: the room hears of it as soon as it may.
    else if (!this.#holds) this.#later = this.#clock.after(wait, () => this.#start());
  }

  /** A message ends the typing by itself; so does a lost connection, after which it is said anew. */
  ended(forgetting = false): void {
    this.#later();
    this.#holds = false;
    if (forgetting) this.#startedAt = -Infinity;
  }

  #start(): void {
    if (!this.#say("typing.start")) return;
    this.#startedAt = this.#clock.now();
    this.#holds = true;
  }
}
