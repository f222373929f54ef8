// Queue of commands that the server has not answered. After a lost connection, the commands are sent again, in order.

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

/** Name of a lane: a sequence of commands that are sent in order. With a new symbol, a command has a lane of its own. */
export type Lane = string | symbol;

/** Send a command over the connection. Fails with `disconnected` without a connection, or if the connection is lost before the answer. */
export type Transmit = (command: string, fold?: (reply: any) => void) => Promise<any>;

/**
 * Queue of commands that the client may send twice without harm. Examples are reads, marks that only move forward, and
 * writes with a key: of several writes with one key, the server carries out only the first. Each lane sends one command at a time, so
 * that commands of a lane stay in order.
 */
export class Outbox {
  #waiting = new Set<Sending>(); // commands without an answer, in the order of the calls of `send`
  #running = new Set<Lane>(); // lanes that are sending a command
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

  /** Send a command and return its answer. If the connection is lost before the answer, the command is sent again. */
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

  /** Send the waiting commands on a new connection. */
  _flush(): void {
    for (const { _lane: lane } of this.#waiting) void this.#run(lane);
  }

  /** Reject all waiting commands, because the client is closed. */
  _fail(error: GreendotError): void {
    for (const sending of this.#waiting) sending.reject(error);
    this.#waiting.clear();
    this.#bytes = 0;
  }

  async #run(lane: Lane): Promise<void> {
    if (this.#running.has(lane)) return;
    this.#running.add(lane);
    // The loop also visits commands that are added to the set during the loop.
    for (const sending of this.#waiting) if (sending._lane === lane && !(await this.#try(sending))) break;
    this.#running.delete(lane);
  }

  /**
   * Send a command until the server has carried it out or has refused it for good. After MOST_FAILURES failures with
   * `internal`, give up. Returns false if the connection is lost: the command then waits for the next connection.
   */
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

  /** Remove a command from the queue. Returns false if the command is no longer in the queue, because the client was closed. */
  #done(sending: Sending): boolean {
    const isWaiting = this.#waiting.delete(sending);
    if (isWaiting) this.#bytes -= sending._bytes;
    return isWaiting;
  }
}
