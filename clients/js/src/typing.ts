// Typing in a room: the users who type, and the typing reports of this client.

import type { Clock } from "./clock.js";
import type { Undo } from "./options.js";
import type { Typer, TypingTimes } from "./wire.js";

const SLACK_MS = 1_000; // if the next `typing.started` is late by up to this time, the user stays in the list
// Extra wait before the next `typing.start`, besides `throttle_ms`. Without it, a command that travels faster than the one
// before could arrive too early, and the server would ignore it.
const EARLY_MS = 100;
/** Default times, for a server that does not send its times in `welcome`. */
export const TYPING: TypingTimes = { repeat_ms: 3_000, hold_ms: 5_000, throttle_ms: 2_000 };

/** Users who type in a room. A user is removed some seconds after the last `typing.started`, even without a further event. */
export class Typists {
  #ends = new Map<string, { typer: Typer; undo: Undo }>();
  #count = 0; // number of users who type, from the server; only in large rooms, where the server sends no names
  #countEnd: Undo = () => {};
  #clock: Clock;
  #changed: () => void;

  constructor(clock: Clock, changed: () => void) {
    this.#clock = clock;
    this.#changed = changed;
  }

  /** Users who type, in the order in which they started to type. */
  get typers(): Typer[] {
    return [...this.#ends.values()].map(({ typer }) => typer);
  }

  get count(): number {
    return Math.max(this.#count, this.#ends.size);
  }

  _started({ user, name, info }: Typer, expiresInMs: number): void {
    const known = this.#ends.get(user);
    known?.undo();
    const undo = this.#clock.after(expiresInMs + SLACK_MS, () => this._stopped(user));
    this.#ends.set(user, { typer: known?.typer ?? { user, name, info }, undo });
    if (!known) this.#changed();
  }

  _stopped(user: string): void {
    this.#ends.get(user)?.undo();
    if (this.#ends.delete(user)) this.#changed();
  }

  _counted(count: number, expiresInMs: number): void {
    this.#countEnd();
    this.#countEnd = count ? this.#clock.after(expiresInMs + SLACK_MS, () => this._counted(0, 0)) : () => {};
    const changed = count !== this.#count;
    this.#count = count;
    if (changed) this.#changed();
  }

  clear(): void {
    this.#ends.forEach((_, user) => this._stopped(user));
    this._counted(0, 0);
  }
}

/**
 * Typing reports of this client. Call `typing(true)` with every keystroke. At a call, the client sends `typing.start` if
 * `repeat_ms` have passed since the last start. After a stop, the next start waits until `throttle_ms` after the last start.
 */
export class Keystrokes {
  #say: (type: "typing.start" | "typing.stop") => boolean;
  #clock: Clock;
  #times: () => TypingTimes;
  #startedAt = -Infinity;
  #holds = false; // a start was sent, and no stop after it
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
      return this.ended();
    }
    const { repeat_ms, throttle_ms } = this.#times();
    const passed = this.#clock.now() - this.#startedAt; // negative if the clock was set back
    const wait = (this.#holds ? repeat_ms : throttle_ms + EARLY_MS) - passed;
    if (wait <= 0 || passed < 0) this.#start();
    // The server would ignore a start now, because the last start was too recent. Send the start later.
    else if (!this.#holds) this.#later = this.#clock.after(wait, () => this.#start());
  }

  /**
   * Record that the typing is over: after a stop, a message, a leave or a lost connection. With `forgetting`, the next
   * start need not wait until `throttle_ms` after the last start.
   */
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
