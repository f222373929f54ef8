// Queue of commands without an answer. They are sent again until the server answers, in order within each lane.

import type { Clock } from "./clock.js";
import { GreendotError } from "./errors.js";
import { MOST_FAILURES, RETRY_MS } from "./limits.js";
import { byteLength } from "./link.js";

interface Sending {
  command: string;
  bytes: number;
  failures: number;
  fold: ((reply: any) => void) | undefined;
  resolve(reply: any): void;
  reject(error: unknown): void;
}

/** Name of an ordered sequence of commands. A new symbol is a lane for one command. */
export type Lane = string | symbol;

/** Send a command over the link. Fails with `disconnected` if there is no link, or if it is lost before the answer. */
export type Transmit = (command: string, fold?: (reply: any) => void) => Promise<any>;

/**
 * Queue of idempotent commands: the server accepts their key once, or they only move a position forward.
 * Each lane sends one command at a time, so that later commands do not overtake one that waits.
 */
export class Outbox {
  #lanes = new Map<Lane, Sending[]>();
  #running = new Set<Lane>();
  #count = 0;
  #bytes = 0;
  #most: { count: number; bytes: number };
  #transmit: Transmit;
  #clock: Clock;

  constructor(most: { count?: number; bytes?: number } | undefined, transmit: Transmit, clock: Clock) {
    this.#most = { count: 200, bytes: 1_048_576, ...most };
    this.#transmit = transmit;
    this.#clock = clock;
  }

  get size(): number {
    return this.#count;
  }

  /** Send a command and return its answer, across reconnects. */
  send<Reply>(lane: Lane, command: string, fold?: (reply: Reply) => void): Promise<Reply> {
    const bytes = byteLength(command);
    if (this.#count >= this.#most.count || this.#bytes + bytes > this.#most.bytes) {
      const full = `\`queue\` is full: ${this.#count} commands (${this.#bytes} bytes) wait`;
      return Promise.reject(new GreendotError("queue_full", full, true));
    }
    return new Promise((resolve, reject) => {
      const waiting = this.#lanes.get(lane) ?? [];
      this.#lanes.set(lane, waiting);
      waiting.push({ command, bytes, failures: 0, fold, resolve, reject });
      this.#count += 1;
      this.#bytes += bytes;
      void this.#run(lane);
    });
  }

  /** Send the commands that wait, on a new connection. */
  flush(): void {
    for (const lane of this.#lanes.keys()) void this.#run(lane);
  }

  /** Reject all commands: the client is closed. */
  fail(error: GreendotError): void {
    for (const waiting of this.#lanes.values()) for (const sending of waiting) sending.reject(error);
    this.#lanes.clear();
    this.#count = this.#bytes = 0;
  }

  async #run(lane: Lane): Promise<void> {
    if (this.#running.has(lane)) return;
    this.#running.add(lane);
    let sending;
    while ((sending = this.#lanes.get(lane)?.[0]) && (await this.#try(lane, sending)));
    this.#running.delete(lane);
  }

  /** Send one command. Returns whether to continue with the lane. */
  async #try(lane: Lane, sending: Sending): Promise<boolean> {
    try {
      const reply = await this.#transmit(sending.command, sending.fold);
      if (this.#done(lane, sending)) sending.resolve(reply);
    } catch (error) {
      const { code, retry, retryInMs } = error as GreendotError;
      if (code === "disconnected") return false; // the next connection continues here
      if (code === "internal") sending.failures += 1;
      if (retry && sending.failures < MOST_FAILURES) {
        await new Promise<void>((resolve) => this.#clock.after(retryInMs ?? RETRY_MS, resolve));
      } else if (this.#done(lane, sending)) sending.reject(error);
    }
    return true;
  }

  /** Remove a command from its lane. Returns false if `fail` has removed it. */
  #done(lane: Lane, sending: Sending): boolean {
    const waiting = this.#lanes.get(lane);
    if (waiting?.[0] !== sending) return false;
    waiting.shift();
    if (!waiting.length) this.#lanes.delete(lane);
    this.#count -= 1;
    this.#bytes -= sending.bytes;
    return true;
  }
}
