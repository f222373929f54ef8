// One socket: greeted, kept alive, asked and answered, closed. It never comes back; the session makes another.

import type { Clock } from "./clock.js";
import { GreendotError } from "./errors.js";
import { CLOSE_MS, FAREWELL_MS, LOST, OPEN, PATIENCE_MS, PROBE_MS, SILENT_BEATS, WELCOME_MS } from "./limits.js";
import type { Socket, Undo } from "./options.js";
import type { RawEvent, Welcome } from "./wire.js";

/** How a link ended. `refusal` is the server's error where it did not take the hello. */
export interface LinkEnd {
  code: number;
  detail: string;
  refusal: GreendotError | null;
  /** Whether there was a connection at all. */
  opened: boolean;
}

export interface LinkEvents {
  event(frame: RawEvent): void;
  /** An error that answers nothing anybody waits for. */
  failure(error: GreendotError): void;
  /** Once. */
  end(end: LinkEnd): void;
}

interface Waiting {
  resolve(data: any): void;
  reject(error: GreendotError): void;
  fold?: ((data: any) => void) | undefined;
  undo: Undo;
}

/** A command as it goes over the wire, without its id. */
export function encode(type: string, fields: object = {}): string {
  return JSON.stringify({ type, ...fields });
}

export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

export class Link {
  /** Welcomed, and not yet ended. */
  open = false;
  #socket: Socket;
  #on: LinkEvents | null;
  #clock: Clock;
  #random: () => number;
  #waiting = new Map<unknown, Waiting>();
  #lastId = 0;
  #heard: number; // by the wall clock: it goes on while the computer sleeps
  #answers = false; // something was heard since it was last asked whether anybody is there
  #silentMs = Infinity;
  #most = 65_536; // bytes of a frame
  #opened = false;
  #refusal: GreendotError | null = null;
  #beating: Undo;
  #probing: Undo = () => {};

  constructor(socket: Socket, hello: object, on: LinkEvents, clock: Clock, random: () => number) {
    this.#socket = socket;
    this.#on = on;
    this.#clock = clock;
    this.#random = random;
    this.#heard = clock.now();
    this.#beating = clock.after(WELCOME_MS, () => this.drop("no answer from the server"));
    socket.onopen = () => {
      this.#opened = true;
      this.#write(encode("hello", { ...hello, id: 0 }));
    };
    socket.onmessage = (message) => this.#received(message.data);
    socket.onclose = (close) => this.#ended(close.code, close.reason);
    socket.onerror = () => this.#failed();
  }

  /** Say something that needs no answer. Whether it was said. */
  tell(command: string): boolean {
    if (!this.open) return false;
    this.#check(command);
    return this.#write(command);
  }

  /**
   * The answer's data. `fold` is given it before any later frame is read, which nobody who waits for a promise can rely
   * on: several frames may come in one turn.
   */
  request<Reply>(command: string, fold?: (reply: Reply) => void): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#check(command);
      if (!this.open || !this.#write(`{"id":${id},${command.slice(1)}`)) throw disconnected("not connected");
      const undo = this.#clock.after(PATIENCE_MS, () => this.probe());
      this.#waiting.set(id, { resolve, reject, fold, undo });
    });
  }

  /** Find out now whether the other side is still there, for instance after sleep. */
  probe(): void {
    if (!this.open) return;
    if (this.#clock.now() - this.#heard > this.#silentMs) return this.drop("the connection was silent");
    this.#write(encode("heartbeat"));
    this.#probing();
    this.#answers = false;
    this.#probing = this.#clock.after(PROBE_MS, () => this.#answers || this.drop("no answer from the server"));
  }

  /** Give up on the socket. A dead network would let the browser wait minutes for its close. */
  drop(detail: string): void {
    this.#socket.onerror = () => {}; // undici reports its own close as an error; without a handler ws throws
    this.#socket.close();
    this.#ended(LOST, detail);
  }

  /** Leave, for good with `bye`. */
  leave(bye: boolean): void {
    if (!bye || !this.open) return this.drop("closed");
    this.#write(encode("bye"));
    this.#ended(LOST, "closed");
    // The server closes when it has read that; closed from here at once, it may not get to it.
    const undo = this.#clock.after(FAREWELL_MS, () => this.#socket.close());
    this.#socket.onclose = undo;
  }

  #write(text: string): boolean {
    if (this.#socket.readyState !== OPEN) return false;
    this.#socket.send(text);
    return true;
  }

  /** Sent anyway it would close the socket (1009), and be sent again after every return. */
  #check(command: string): void {
    if (byteLength(command) > this.#most - 32) {
      throw new GreendotError("too_large", `longer than the ${this.#most} bytes the server reads`);
    }
  }

  #received(text: unknown): void {
    this.#heard = this.#clock.now();
    this.#answers = true;
    let frame;
    try {
      frame = JSON.parse(String(text));
    } catch {
      return; // nothing a Greendot server sends
    }
    if (!this.#on || typeof frame?.type !== "string") return;
    if (frame.type === "reply") this.#answered(frame);
    else if (frame.type === "error") this.#refused(frame);
    else {
      if (frame.type === "welcome") this.#welcomed(frame.data);
      frame.data ??= {};
      this.#on.event(frame);
    }
  }

  #answered(frame: { id: unknown; data: unknown }): void {
    const waiting = this.#settle(frame.id);
    waiting?.fold?.(frame.data);
    waiting?.resolve(frame.data);
  }

  #refused(frame: { id: unknown; code: string; message: string; retry?: boolean; retry_in_ms?: number }): void {
    const error = new GreendotError(frame.code, frame.message, !!frame.retry, frame.retry_in_ms ?? null);
    if (this.open) {
      const waiting = this.#settle(frame.id);
      if (waiting) waiting.reject(error);
      else this.#on!.failure(error);
    } else {
      this.#refusal = error; // of the hello: there was nothing else to refuse
      this.drop(error.message);
    }
  }

  #welcomed({ heartbeat_s, limits }: Welcome): void {
    this.open = true;
    this.#silentMs = heartbeat_s * SILENT_BEATS * 1000;
    this.#most = limits.frame_bytes;
    this.#beating();
    // The first comes sooner, for each client by another time: many who came back together must not beat together.
    this.#beatIn(heartbeat_s * 1000 * (0.5 + this.#random() / 2), heartbeat_s * 1000);
  }

  #beatIn(ms: number, next: number): void {
    this.#beating = this.#clock.after(ms, () => {
      if (this.#clock.now() - this.#heard > this.#silentMs) return this.drop("the connection was silent");
      this.#write(encode("heartbeat"));
      this.#beatIn(next, next);
    });
  }

  #settle(id: unknown): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?.undo();
    return waiting;
  }

  /** A refused connection: browsers and ws fire `close` after this error, undici does not. */
  #failed(): void {
    if (!this.#on) return;
    if (!this.#opened) return this.drop("");
    this.#probing();
    this.#probing = this.#clock.after(CLOSE_MS, () => this.drop("the connection failed"));
  }

  #ended(code: number, detail: string): void {
    const on = this.#on;
    if (!on) return;
    this.#on = null;
    this.open = false;
    this.#beating();
    this.#probing();
    for (const id of [...this.#waiting.keys()]) this.#settle(id)!.reject(disconnected(detail || "not connected"));
    on.end({ code, detail, refusal: this.#refusal, opened: this.#opened });
  }
}

export function disconnected(message: string): GreendotError {
  return new GreendotError("disconnected", message, true);
}
