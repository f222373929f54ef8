// Staying connected: one link after another.
//
//   idle ──► connecting ──► online ──► waiting | offline ──► connecting …
//                └────────────┴──────────► closed (by the program, a close code 4500–4999, or no token to be had)

import { backoff, BACKOFF, type Backoff } from "./backoff.js";
import type { Clock } from "./clock.js";
import { GreendotError } from "./errors.js";
import { disconnected, encode, Link, type LinkEnd } from "./link.js";
import type { Connection, ConnectionState, Page, Socket, Undo } from "./options.js";
import { isFinal, reasonFor, type Reason } from "./reasons.js";
import type { Tokens } from "./tokens.js";
import type { RawEvent, Welcome } from "./wire.js";

const STEADY_MS = 5_000; // a connection that lasted so long was a good one: the next failure counts as the first
const CALM_MS = 1_000; // a page that comes and goes does not make attempts follow each other faster than this
const RETRY_MS = 1_000; // before asking again what the server cannot grant now and gives no time for
const EXPIRED = 4005;
const BAD_TOKEN = 4500;

/** What a session is made of. */
export interface Parts {
  open(): Socket;
  tokens: Tokens;
  clock: Clock;
  random(): number;
  page: Page | null;
  backoff: Partial<Backoff> | undefined;
  /** The hello for this token's owner, resuming what there is to resume. */
  hello(token: string, owner: string): Promise<object>;
  state(connection: Connection): void;
  event(frame: RawEvent): void;
  error(error: GreendotError): void;
  /** The link is lost. */
  lost(): void;
  /** There will be no other, until `connect`. */
  closed(error: GreendotError): void;
}

export class Session {
  connection: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });
  welcome: Welcome | null = null;
  #parts: Parts;
  #link: Link | null = null;
  #attempt = 0; // the number of the attempt under way; whatever belongs to an older one is ignored
  #failures = 0;
  #onlineAt = Infinity;
  #ahead = 0; // how far the server's clock is ahead of ours
  #hintMs: number | null = null; // the server's wish for the next attempt
  #notBefore = 0; // a page that wakes does not try again earlier
  #anotherToken = true; // whether one that is not taken may be followed by another
  #timer: Undo = () => {};
  #refreshing: Undo = () => {};
  #unlisten: Undo[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get online(): boolean {
    return this.#link?.open ?? false;
  }

  /** The server's time. */
  now(): number {
    return this.#parts.clock.now() + this.#ahead;
  }

  connect(): void {
    const { state } = this.connection;
    if (state === "online" || state === "connecting") return;
    if (state === "idle" || state === "closed") {
      this.#failures = 0;
      this.#anotherToken = true;
      this.#listen();
    }
    void this.#connect();
  }

  close(bye: boolean): void {
    if (this.connection.state !== "closed") this.#stop(reasonFor("closed"), bye);
  }

  /** Say something that is worth nothing later. Whether it was said. */
  tell(type: string, fields?: object): boolean {
    return this.#link?.tell(encode(type, fields)) ?? false;
  }

  /** The answer to a command that was encoded; `disconnected` without a connection. */
  transmit<Reply>(command: string, fold?: (reply: Reply) => void): Promise<Reply> {
    return this.#link ? this.#link.request(command, fold) : Promise.reject(disconnected(this.connection.state));
  }

  /** The answer, asked for on this connection until the server can give it. */
  async persist<Reply>(type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const link = this.#link;
    for (;;) {
      if (!link || link !== this.#link) throw disconnected("the connection was lost");
      try {
        return await link.request(encode(type, fields), fold);
      } catch (error) {
        const { code, retry, retryInMs } = error as GreendotError;
        if (!retry || code === "disconnected" || code === "internal") throw error;
        await new Promise<void>((resolve) => this.#parts.clock.after(retryInMs ?? RETRY_MS, resolve));
      }
    }
  }

  // One link after another

  async #connect(): Promise<void> {
    const attempt = ++this.#attempt;
    const { tokens } = this.#parts;
    this.#timer();
    this.#become("connecting", null);
    let link: Link | undefined;
    try {
      const token = await tokens.current(this.now());
      if (attempt !== this.#attempt) return;
      if (token === null) return this.#stop(reasonFor("signed_out"));
      const hello = await this.#parts.hello(token, tokens.claims.owner);
      if (attempt !== this.#attempt) return;
      link = new Link(this.#parts.open(), hello, {
        event: (frame) => this.#received(frame),
        failure: (error) => this.#parts.error(error),
        end: (end) => link === this.#link && this.#ended(end),
      }, this.#parts.clock, this.#parts.random);
      this.#link = link;
    } catch (error) {
      if (attempt !== this.#attempt) return;
      const { code, message } = error as GreendotError;
      if (code === "no_token") this.#parts.error(error as GreendotError);
      this.#wait(code === "no_token" ? code : "unreachable", message);
    }
  }

  #received(frame: RawEvent): void {
    const data = frame.data as any;
    if (frame.type === "welcome") {
      this.welcome = data;
      this.#ahead = data.server_time - this.#parts.clock.now();
      this.#onlineAt = this.#parts.clock.now();
      this.#hintMs = null;
      this.#planRefresh();
      // Those who hear of it find everything restored that needs no answer.
      this.#parts.event(frame);
      this.#become("online", null);
      return;
    }
    if (frame.type === "drain" || frame.type === "overloaded") this.#hintMs = data.retry_in_ms;
    this.#parts.event(frame);
  }

  #ended({ code, detail, refusal, opened }: LinkEnd): void {
    this.#link = null;
    this.#refreshing();
    if (this.#parts.clock.now() - this.#onlineAt > STEADY_MS) {
      this.#failures = 0;
      this.#anotherToken = true;
    }
    this.#onlineAt = Infinity;
    this.#parts.lost();
    if (code === EXPIRED || code === BAD_TOKEN) {
      this.#parts.tokens.forget(code === EXPIRED ? "expired" : "refused");
      if (this.#anotherToken) {
        this.#anotherToken = false;
        return void this.#connect();
      }
    }
    if (refusal) this.#hintMs = refusal.retryInMs;
    if (isFinal(code)) this.#stop(reasonFor(code, detail));
    else if (refusal && !refusal.retry) this.#stop(reasonFor(refusal.code, detail));
    else this.#wait(opened ? code : "unreachable", detail);
  }

  #wait(code: number | string, detail: string): void {
    const { clock, random, page } = this.#parts;
    const bounds = { ...BACKOFF, ...this.#parts.backoff };
    const isOnline = page?.isOnline() ?? true;
    // Without a network an attempt is worth little, but what the page says of it may be wrong.
    const ms = isOnline ? backoff(this.#failures, this.#hintMs, random, bounds) : bounds.capMs;
    this.#notBefore = clock.now() + Math.max(CALM_MS, this.#hintMs ?? 0);
    this.#hintMs = null;
    this.#failures += 1;
    this.#timer = clock.after(ms, () => void this.#connect());
    if (isOnline) this.#become("waiting", reasonFor(code, detail, Math.round(ms)));
    else this.#become("offline", reasonFor("offline", detail, Math.round(ms)));
  }

  #stop(reason: Reason, bye = false): void {
    const link = this.#link;
    this.#attempt += 1;
    this.#link = null; // before it ends: nobody is to come back from here
    link?.leave(bye);
    this.#timer();
    this.#refreshing();
    for (const undo of this.#unlisten.splice(0)) undo();
    this.#parts.closed(new GreendotError("closed", reason.detail || reason.text));
    this.#become("closed", reason);
  }

  #become(state: ConnectionState, reason: Reason | null): void {
    this.connection = Object.freeze({ state, reason, failures: this.#failures });
    this.#parts.state(this.connection);
  }

  // The page

  #listen(): void {
    const { page } = this.#parts;
    if (!page || this.#unlisten.length) return;
    this.#unlisten = [page.onOnline(() => this.#wake()), page.onVisible((visible) => visible && this.#wake())];
  }

  /** The computer woke, the network came or went, the page is looked at: see to the connection. */
  #wake(): void {
    const { clock, page } = this.#parts;
    const { state, reason } = this.connection;
    if (this.#link) return this.#link.probe();
    if (state !== "waiting" && state !== "offline") return;
    const ms = Math.max(this.#notBefore - clock.now(), 0);
    if (page!.isOnline()) {
      this.#timer();
      this.#timer = clock.after(ms, () => void this.#connect());
      if (state === "offline") this.#become("waiting", reasonFor("lost", "", ms));
    } else if (state === "waiting") this.#become("offline", reasonFor("offline", "", reason!.retryInMs));
  }

  // The token

  #planRefresh(): void {
    const ms = this.#parts.tokens.refreshInMs(this.now(), this.#parts.random);
    if (ms !== null) this.#refreshIn(ms, 1);
  }

  #refreshIn(ms: number, failures: number): void {
    this.#refreshing = this.#parts.clock.after(ms, () => void this.#refresh(failures));
  }

  async #refresh(failures: number): Promise<void> {
    const { tokens, random } = this.#parts;
    const link = this.#link;
    try {
      const token = await tokens.renew("refresh", this.now());
      if (link !== this.#link || !link) return;
      if (token === null) return this.#stop(reasonFor("signed_out"), true);
      await this.persist("token.refresh", { token });
      if (link === this.#link) this.#planRefresh();
    } catch (error) {
      if (link !== this.#link) return;
      this.#parts.error(error as GreendotError);
      // Refused for good: the next connection asks for another one.
      if (!(error as GreendotError).retry) return tokens.forget("refused");
      this.#refreshIn(RETRY_MS + backoff(failures, null, random), failures + 1);
    }
  }
}
