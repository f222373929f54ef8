// Throttled reports of user activity: the first one at once, then at most one every 15 seconds.

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

  /** Reset the throttle, for a new connection or a closed client. */
  reset(): void {
    this.#resting?.();
    this.#resting = null;
    this.#again = false;
  }

  /** Report activity that came during the pause. Without this report, an active user would soon become idle. */
  #rested(): void {
    const again = this.#again;
    this.reset();
    if (again) this.active();
  }
}
