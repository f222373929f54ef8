// Somebody is there: told at once, and while it goes on every few seconds, never more often.

import type { Clock } from "./clock.js";
import type { Undo } from "./options.js";

export const ACTIVITY_MS = 15_000;

export class Activity {
  #clock: Clock;
  #say: () => boolean;
  #resting: Undo | null = null;
  #again = false;

  constructor(clock: Clock, say: () => boolean) {
    this.#clock = clock;
    this.#say = say;
  }

  active(): void {
    if (this.#resting) this.#again = true;
    else if (this.#say()) this.#resting = this.#clock.after(ACTIVITY_MS, () => this.#rested());
  }

  /** A new connection has heard nothing yet; a closed one needs no timer. */
  reset(): void {
    this.#resting?.();
    this.#resting = null;
    this.#again = false;
  }

  /** What came meanwhile is told now: were it forgotten, somebody who has just looked in would soon seem idle. */
  #rested(): void {
    const again = this.#again;
    this.reset();
    if (again) this.active();
  }
}
