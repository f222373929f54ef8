// Queue of commands that the server has not answered. Each is sent again after a lost connection, in order within its lane.

import { type Clock, pause } from "./clock.js";
import { GreendotError } from "./errors.js";
import { MOST_FAILURES } from "./limits.js";
import { byteLength } from "./link.js";

interface Sending {
  _lane: Lane;
  _command: string;
  _bytes: number;
  _failures: number;
  _fold: ((reply: any) => void) | undefined;
  resolve(reply: any): void;
  reject(error: unknown): void;
}

/** Name of an ordered sequence of commands. A new symbol is a lane for one command. */
export type Lane = string | symbol;

/** Send a command over the link. Fails with `disconnected` if there is no link, or if it is lost before the answer. */
export type Transmit = (command: string, fold?: (reply: any) => void) => Promise<any>;

/**
 * Queue of commands that may be sent twice: reads, marks that only move forward, and writes with a key, of which the
 * server accepts one. Each lane sends one command at a time, so that no later command overtakes one that waits.
 */
export class Outbox {
  #waiting = new Set<Sending>(); // in order
  #running = new Set<Lane>();
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
    return this.#waiting.size;
  }

  /** Send a command and return its answer, across reconnects. */
  send<Reply>(lane: Lane, command: string, fold?: (reply: Reply) => void): Promise<Reply> {
    const bytes = byteLength(command);
    if (this.size >= this.#most.count || this.#bytes + bytes > this.#most.bytes) {
      const full = `\`queue\` is full: ${this.size} commands (${this.#bytes} bytes) are waiting`;
      return Promise.reject(new GreendotError("queue_full", full, true));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.add({ _lane: lane, _command: command, _bytes: bytes, _failures: 0, _fold: fold, resolve, reject });
      this.#bytes += bytes;
      void this.#run(lane);
    });
  }

  /** Send the commands that wait, on a new connection. */
  _flush(): void {
    for (const { _lane: lane } of this.#waiting) void this.#run(lane);
  }

  /** Reject all commands: the client is closed. */
  _fail(error: GreendotError): void {
    for (const sending of this.#waiting) sending.reject(error);
    this.#waiting.clear();
    this.#bytes = 0;
  }

  async #run(lane: Lane): Promise<void> {
    if (this.#running.has(lane)) return;
    this.#running.add(lane);
    // The loop also visits commands that are added meanwhile.
    for (const sending of this.#waiting) if (sending._lane === lane && !(await this.#try(sending))) break;
    this.#running.delete(lane);
  }

  /** Send a command until it succeeds or fails for good. Returns false without a connection; the command then waits for the next one. */
  async #try(sending: Sending): Promise<boolean> {
    while (this.#waiting.has(sending)) {
      try {
        const reply = await this.#transmit(sending._command, sending._fold);
        if (this.#done(sending)) sending.resolve(reply);
      } catch (error) {
        const { code, retry, retryInMs } = error as GreendotError;
        if (code === "disconnected") return false;
        if (code === "internal") sending._failures += 1;
        if (retry && sending._failures < MOST_FAILURES) await pause(this.#clock, retryInMs);
        else if (this.#done(sending)) sending.reject(error);
      }
    }
    return true;
  }

  /** Remove a command. Returns false if `_fail` has removed it. */
  #done(sending: Sending): boolean {
    const isWaiting = this.#waiting.delete(sending);
    if (isWaiting) this.#bytes -= sending._bytes;
    return isWaiting;
  }
}
