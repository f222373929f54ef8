// One socket, from the hello to its close. A link never reconnects; the session opens another one.

import type { Clock } from "./clock.js";
import { GreendotError } from "./errors.js";
import { CLOSE_MS, FAREWELL_MS, LOST, OPEN, PATIENCE_MS, PROBE_MS, SILENT_BEATS, WELCOME_MS } from "./limits.js";
import type { Socket, Undo } from "./options.js";
import type { RawEvent, Welcome } from "./wire.js";

/** End of a link. `refusal` is the server's error if it refused the hello. */
export interface LinkEnd {
  code: number;
  _detail: string;
  _refusal: GreendotError | null;
  /** Whether the socket was ever open. */
  _opened: boolean;
}

export interface LinkEvents {
  event(frame: RawEvent): void;
  /** Handle an error frame that answers no waiting command. */
  _failure: (error: GreendotError) => void;
  /** Called once. */
  end(end: LinkEnd): void;
}

interface Waiting {
  _answered(data: any): void;
  _reject(error: GreendotError): void;
  _undo: Undo;
}

/** Encode a command without its id. */
export function encode(type: string, fields: object = {}): string {
  return JSON.stringify({ type, ...fields });
}

export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

export class Link {
  /** Whether the link has received its welcome and has not ended. */
  open = false;
  #socket: Socket;
  #on: LinkEvents | null;
  #clock: Clock;
  #random: () => number;
  #waiting = new Map<unknown, Waiting>();
  #lastId = 0;
  #heard: number; // time of the last frame, by the wall clock, which continues while the computer sleeps
  #answers = false; // a frame came since the last probe
  #beatMs = 0; // interval of heartbeats
  #most = 65_536; // maximum bytes of a frame
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
    this.#beating = clock.after(WELCOME_MS, () => this._drop());
    socket.onopen = () => {
      this.#opened = true;
      this.#write(encode("hello", { ...hello, id: 0 }));
    };
    socket.onmessage = (message) => this.#received(message.data);
    socket.onclose = (close) => this.#ended(close.code, close.reason);
    socket.onerror = () => this.#failed();
  }

  /** Send a command that needs no answer. Returns whether it was sent. */
  _trySend(command: string): boolean {
    if (!this.open) return false;
    this.#check(command);
    return this.#write(command);
  }

  /**
   * Send a command and return the data of its answer. `fold` receives the data before any later frame is processed. The
   * promise resolves later: several frames may arrive in one turn.
   */
  request<Reply>(command: string, fold?: (reply: Reply) => void): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#check(command);
      if (!this.open || !this.#write(`{"id":${id},${command.slice(1)}`)) throw disconnected();
      const answered = (data: Reply) => {
        fold?.(data);
        resolve(data);
      };
      this.#waiting.set(id, { _answered: answered, _reject: reject, _undo: this.#clock.after(PATIENCE_MS, () => this._probe()) });
    });
  }

  /** Check now whether the server still answers, for example after sleep. */
  _probe(): void {
    if (!this.open) return;
    this.#probing();
    this.#answers = false;
    this.#probing = this.#clock.after(PROBE_MS, () => this.#answers || this._drop());
    this.#beat();
  }

  /** End the link without waiting for the socket to close: on a dead network, the close can take minutes. */
  _drop(detail = "no answer from the server"): void {
    this.#socket.onerror = () => {}; // undici reports its own close as an error; without a handler ws throws
    this.#socket.close();
    this.#ended(LOST, detail);
  }

  /** End the link. `bye` ends the session too. */
  _leave(bye: boolean): void {
    if (!bye || !this.open) return this._drop("closed");
    this.#write(encode("bye"));
    this.#ended(LOST, "closed");
    // The server closes after it has read `bye`. If the client closes first, the server may not receive it.
    const undo = this.#clock.after(FAREWELL_MS, () => this.#socket.close());
    this.#socket.onclose = undo;
  }

  #write(text: string): boolean {
    if (this.#socket.readyState !== OPEN) return false;
    this.#socket.send(text);
    return true;
  }

  /** Refuse a command that is too large. The server would close the socket (1009), and every reconnect would resend it. */
  #check(command: string): void {
    if (byteLength(command) > this.#most - 32) {
      throw new GreendotError("too_large", `command exceeds ${this.#most} bytes`);
    }
  }

  #received(text: unknown): void {
    this.#heard = this.#clock.now();
    this.#answers = true;
    let frame;
    try {
      frame = JSON.parse(String(text));
    } catch {
      return; // not a frame of a Greendot server
    }
    if (!this.#on || typeof frame?.type !== "string") return;
    if (frame.type === "reply") this.#settle(frame.id)?._answered(frame.data);
    else if (frame.type === "error") this.#refused(frame);
    else {
      if (frame.type === "welcome") this.#welcomed(frame.data);
      frame.data ??= {};
      this.#on.event(frame);
    }
  }

  #refused(frame: { id: unknown; code: string; message: string; retry?: boolean; retry_in_ms?: number }): void {
    const error = new GreendotError(frame.code, frame.message, !!frame.retry, frame.retry_in_ms ?? null);
    if (this.open) return (this.#settle(frame.id)?._reject ?? this.#on!._failure)(error);
    this.#refusal = error; // of the hello, because no other command was sent
    this._drop(error.message);
  }

  #welcomed({ heartbeat_s, limits }: Welcome): void {
    this.open = true;
    this.#beatMs = heartbeat_s * 1000;
    this.#most = limits.frame_bytes;
    this.#beating();
    // The first heartbeat comes earlier by a random time, so that clients that returned together do not beat together.
    this.#beatIn(0.5 + this.#random() / 2);
  }

  #beatIn(intervals: number): void {
    this.#beating = this.#clock.after(this.#beatMs * intervals, () => {
      this.#beatIn(1);
      this.#beat();
    });
  }

  /** Send a heartbeat, or end the link if the server was silent for too long. */
  #beat(): void {
    if (this.#clock.now() - this.#heard > this.#beatMs * SILENT_BEATS) this._drop();
    else this.#write(encode("heartbeat"));
  }

  #settle(id: unknown): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?._undo();
    return waiting;
  }

  /** Handle an error event. Browsers and ws fire `close` after it, undici does not. */
  #failed(): void {
    if (!this.#on) return;
    if (!this.#opened) return this._drop("");
    this.#probing();
    this.#probing = this.#clock.after(CLOSE_MS, () => this._drop());
  }

  #ended(code: number, detail: string): void {
    const on = this.#on;
    if (!on) return;
    this.#on = null;
    this.open = false;
    this.#beating();
    this.#probing();
    for (const id of [...this.#waiting.keys()]) this.#settle(id)!._reject(disconnected(detail));
    on.end({ code, _detail: detail, _refusal: this.#refusal, _opened: this.#opened });
  }
}

export function disconnected(detail?: string): GreendotError {
  return new GreendotError("disconnected", detail || "not connected", true);
}
