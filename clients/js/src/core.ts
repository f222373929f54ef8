// What rooms, inbox and presence use of the client they belong to.

import type { Clock } from "./clock.js";
import type { Emitter } from "./emitter.js";
import type { GreendotError } from "./errors.js";
import type { ClientEvents } from "./options.js";
import type { Cursors } from "./store.js";

export interface Core {
  clock: Clock;
  events: Emitter<ClientEvents>;
  cursors: Cursors;
  online(): boolean;
  visible(): boolean;
  /** The server's time. */
  now(): number;
  /** Say something that is worth nothing later. Whether it was said. */
  tell(type: string, fields: object): boolean;
  /** The answer; `disconnected` without a connection. Asked again while the server says "later". */
  ask<Reply>(type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply>;
  /** The answer, however many connections it takes: for commands that may be said twice. Each lane keeps its order. */
  deliver<Reply>(lane: string, type: string, fields: object, fold?: (reply: Reply) => void): Promise<Reply>;
  /** What nobody waited for went wrong. */
  failed(error: GreendotError): void;
  /** A listener threw. */
  threw: (error: unknown) => void;
}
