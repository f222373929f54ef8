// Connection management: opens one link after another.
//
//   idle ──► connecting ──► online ──► waiting | offline ──► connecting …
//                └────────────┴──────────► closed (by the program, a close code 4500–4999, or no signed-in user)

import { backoff, BACKOFF } from "./backoff.js";
import { type Clock, pause, systemClock } from "./clock.js";
import { Emitter } from "./emitter.js";
import { because, GreendotError } from "./errors.js";
import { BAD_TOKEN, CALM_MS, EXPIRED, PREPARED_MS, RETRY_MS, STEADY_MS } from "./limits.js";
import { disconnected, encode, Link, type LinkEnd } from "./link.js";
import type {
  ClientEvents,
  Connection,
  ConnectionState,
  GreendotOptions,
  Page,
  SignalOptions,
  Store,
  Undo,
  WebSocketMaker,
} from "./options.js";
import { type Lane, Outbox } from "./outbox.js";
import { browserPage } from "./page.js";
import { isFinal, reasonFor, type Reason } from "./reasons.js";
import { Cursors } from "./store.js";
import { Tokens } from "./tokens.js";
import { TYPING } from "./typing.js";
import type { RawEvent, TypingTimes, Welcome } from "./wire.js";

const EVENTS: Record<keyof ClientEvents, 1> = {
  state: 1,
  welcome: 1,
  presence: 1,
  typing: 1,
  message: 1,
  notification: 1,
  badge: 1,
  signal: 1,
  error: 1,
  refresh: 1,
  event: 1,
};

/** Callbacks of the client for its session. */
export interface Owner {
  /** Return the hello for the owner of the token, with the session, rooms and inbox to resume. */
  _hello(token: string, owner: string): Promise<object>;
  event(frame: RawEvent): void;
  /** Listen to the page until the session is closed. */
  _listen(page: Page): Undo[];
  /** The link is lost. */
  _lost(): void;
  /** The session is closed until `connect`. */
  _closed(error: GreendotError): void;
}

let openAny: typeof import("./sse.js").open | undefined; // loaded after an attempt without a welcome

export class Session {
  connection: Connection = { state: "idle", reason: null, failures: 0 };
  welcome: Welcome | null = null;
  readonly _clock: Clock;
  readonly _page: Page | null;
  readonly _cursors: Cursors;
  readonly _events: Emitter<ClientEvents>;
  readonly _outbox: Outbox;
  #options: GreendotOptions;
  #owner: Owner;
  #tokens: Tokens;
  _random: () => number;
  #url: string;
  #webSocket: WebSocketMaker | undefined;
  #link: Link | null = null;
  #attempt = 0; // number of the current attempt; results of older attempts are ignored
  #failures = 0;
  #onlineAt = Infinity;
  #ahead = 0; // milliseconds that the server's clock is ahead of the local clock
  #hintMs: number | null = null; // minimum delay before the next attempt, from the server
  #notBefore = 0; // earliest time of the next attempt after a wake-up
  #anotherToken = true; // whether to request another token if the server refuses this one
  #timer: Undo = () => {};
  #refreshing: Undo = () => {};
  #unlisten: Undo[] = [];

  constructor(options: GreendotOptions, owner: Owner) {
    const { clock = systemClock, random = Math.random, page = browserPage(), storage = new Map() as unknown as Store } = options;
    this.#options = options;
    this.#owner = owner;
    this.#url = addressOf(options.url);
    this.#webSocket = options.webSocket ?? globalThis.WebSocket;
    this.#tokens = new Tokens(options.getToken);
    this._random = random;
    this._clock = clock;
    this._page = page;
    this._cursors = new Cursors(storage, clock, this._failed);
    this._events = new Emitter(this._threw, EVENTS);
    this._outbox = new Outbox(options.queue, this.#request, clock);
  }

  get online(): boolean {
    return this.#link?.open ?? false;
  }

  get typing(): TypingTimes {
    return this.welcome?.typing ?? TYPING;
  }

  get visible(): boolean {
    return this._page?.isVisible() ?? true;
  }

  /** Return the estimated time of the server. */
  now(): number {
    return this._clock.now() + this.#ahead;
  }

  // Commands of rooms, inbox and presence

  /** Send a command that is useless later. Returns whether it was sent. */
  _tell(type: string, fields?: object): boolean {
    return this.#link?._tell(encode(type, fields)) ?? false;
  }

  /** Send a signal, and ask for a reply if the caller wants one. */
  signal(fields: object, { key, reply }: SignalOptions = {}): boolean | Promise<void> {
    const sent = { ...fields, key };
    return reply ? this.ask("signal.send", sent) : this._tell("signal.send", sent);
  }

  /** Send a command on this connection, with retries, and return the answer. Fails with `disconnected` without a connection. */
  async ask<Reply>(type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const link = this.#link;
    for (;;) {
      try {
        return await this.#request(encode(type, fields), fold, link); // fails if the link has ended
      } catch (error) {
        const { code, retry, retryInMs } = error as GreendotError;
        if (!retry || code === "disconnected" || code === "internal") throw error;
        await pause(this._clock, retryInMs);
      }
    }
  }

  /** Send an idempotent command and return its answer, across reconnects. Each lane keeps its order. */
  async _deliver<Reply>(lane: Lane, type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const { state, reason } = this.connection;
    if (state === "closed") throw new GreendotError("closed", reason!.text);
    return this._outbox.send(lane, encode(type, fields), fold);
  }

  /** Emit an error that no promise reports. */
  _failed = (error: GreendotError): void => this._events.emit("error", error);

  /** Log and emit the error of a listener for this event type. */
  _threw = (error: unknown, type?: unknown): void => {
    console.error("greendot: a listener threw", error);
    // A failing listener of `error` must not receive its own error: it would throw forever.
    if (type !== "error") this._failed(because("listener", "a listener threw", error));
  };

  #request = <Reply>(command: string, fold?: (reply: Reply) => void, link = this.#link): Promise<Reply> => {
    return link ? link.request(command, fold) : Promise.reject(disconnected());
  };

  // Links

  connect(): void {
    const { state } = this.connection;
    // Checked here and not in the constructor: pages rendered on a server never connect.
    if (!this.#webSocket) throw new GreendotError("bad_field", "no global WebSocket: set `webSocket`");
    if (state === "online" || state === "connecting") return;
    if (state === "idle" || state === "closed") {
      this.#failures = 0;
      this.#anotherToken = true;
      this.#listen();
    }
    void this.#connect();
  }

  close(bye: boolean): void {
    if (this.connection.state !== "closed") this.#stop("closed", "", bye);
  }

  async #connect(): Promise<void> {
    const attempt = ++this.#attempt;
    const tokens = this.#tokens;
    this.#timer();
    // A getToken or a storage that never answers must not prevent further attempts.
    this.#timer = this._clock.after(PREPARED_MS, () => {
      this.#attempt += 1;
      this.#wait("no_token", "getToken did not answer");
    });
    this.#become("connecting", null);
    let link: Link | undefined;
    try {
      const token = await tokens.current(this.now());
      if (attempt !== this.#attempt) return;
      if (token === null) return this.#stop("signed_out");
      const hello = await this.#owner._hello(token, tokens._claims._owner);
      if (attempt !== this.#attempt) return;
      const on = {
        event: (frame: RawEvent) => this.#received(frame),
        _failure: this._failed,
        end: (end: LinkEnd) => link === this.#link && this.#ended(end),
      };
      this.#timer();
      const socket = openAny?.(this.#url, this.#options) ?? new this.#webSocket!(this.#url);
      this.#link = link = new Link(socket, hello, on, this._clock, this._random);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      const { code, message } = error as GreendotError;
      if (code === "no_token") this._failed(error as GreendotError);
      this.#wait(code === "no_token" ? code : "unreachable", message);
    }
  }

  #received(frame: RawEvent): void {
    const data = frame.data as any;
    if (frame.type === "welcome") {
      this.welcome = data;
      this.#ahead = data.server_time - this._clock.now();
      this.#onlineAt = this._clock.now();
      this.#hintMs = null;
      this.#refreshIn();
      // Restore before the state changes: listeners of `state` find everything restored that needs no answer.
      this.#owner.event(frame);
      this.#become("online", null);
      return;
    }
    if (frame.type === "drain" || frame.type === "overloaded") this.#hintMs = data.retry_in_ms;
    this.#owner.event(frame);
  }

  #ended({ code, _detail: detail, _refusal: refusal, _opened: opened }: LinkEnd): void {
    this.#link = null;
    this.#refreshing();
    if (this._clock.now() - this.#onlineAt > STEADY_MS) {
      this.#failures = 0;
      this.#anotherToken = true;
    }
    if (!opened) import("./sse.js").then(({ open }) => (openAny = open), () => {});
    this.#onlineAt = Infinity;
    this.#owner._lost();
    if (code === EXPIRED || code === BAD_TOKEN) {
      this.#tokens._forget(code === EXPIRED ? "expired" : "refused");
      if (this.#anotherToken) {
        this.#anotherToken = false;
        return void this.#connect();
      }
    }
    if (refusal) this.#hintMs = refusal.retryInMs;
    if (isFinal(code)) this.#stop(code, detail);
    else if (refusal && !refusal.retry) this.#stop(refusal.code, detail);
    else this.#wait(opened ? code : "unreachable", detail);
  }

  #wait(code: number | string, detail: string): void {
    this.#timer();
    const bounds = { ...BACKOFF, ...this.#options.backoff };
    const isOnline = this._page?.isOnline() ?? true;
    // Without a network an attempt rarely succeeds, but the page's report may be wrong.
    const ms = isOnline ? Math.round(backoff(this.#failures, this.#hintMs, this._random, bounds)) : bounds.capMs;
    if (code !== "offline") {
      this.#notBefore = this._clock.now() + Math.max(CALM_MS, this.#hintMs ?? 0);
      this.#failures += 1;
    }
    this.#hintMs = null;
    this.#timer = this._clock.after(ms, () => void this.#connect());
    this.#become(isOnline ? "waiting" : "offline", reasonFor(isOnline ? code : "offline", detail, ms));
  }

  #stop(code: number | string, detail = "", bye = false): void {
    const reason = reasonFor(code, detail);
    const link = this.#link;
    this.#attempt += 1;
    this.#link = null; // before the link ends, so that its end causes no reconnect
    link?._leave(bye);
    this.#tokens._forget("first"); // another user may connect next
    this.#timer();
    this.#refreshing();
    for (const undo of this.#unlisten.splice(0)) undo();
    this.#owner._closed(new GreendotError("closed", detail || reason.text));
    this.#become("closed", reason);
  }

  #become(state: ConnectionState, reason: Reason | null): void {
    this.connection = { state, reason, failures: this.#failures };
    this._events.emit("state", this.connection);
  }

  // The page

  #listen(): void {
    const { _page: page } = this;
    if (!page || this.#unlisten.length) return;
    this.#unlisten = [
      page.on("network", () => this.#wake()),
      page.on("visibility", () => page.isVisible() && this.#wake()),
      ...this.#owner._listen(page),
    ];
  }

  /** Check the connection after sleep, a network change, or when the page becomes visible. */
  #wake(): void {
    const { state } = this.connection;
    if (this.#link) return this.#link._probe();
    if (state !== "waiting" && state !== "offline") return;
    const ms = Math.max(this.#notBefore - this._clock.now(), 0);
    if (this._page!.isOnline()) {
      this.#timer();
      this.#timer = this._clock.after(ms, () => void this.#connect());
      if (state === "offline") this.#become("waiting", reasonFor("lost", "", ms));
    } else if (state === "waiting") this.#wait("offline", ""); // the planned attempt would fail at once
  }

  // The token

  /** Plan the refresh of the token, by default shortly before it expires. */
  #refreshIn(ms = this.#tokens._refreshInMs(this.now(), this._random), failures = 1): void {
    if (ms !== null) this.#refreshing = this._clock.after(ms, () => void this.#refresh(failures));
  }

  async #refresh(failures: number): Promise<void> {
    const tokens = this.#tokens;
    const link = this.#link;
    try {
      const token = await tokens._renew("refresh");
      if (link !== this.#link || !link) return;
      if (token === null) return this.#stop("signed_out", "", true);
      await this.ask("token.refresh", { token });
      if (link === this.#link) this.#refreshIn();
    } catch (error) {
      if (link !== this.#link) return;
      this._failed(error as GreendotError);
      // The server refused the token: the next connection requests another one.
      if (!(error as GreendotError).retry) return tokens._forget("refused");
      this.#refreshIn(RETRY_MS + backoff(failures, null, this._random), failures + 1);
    }
  }
}

/** Return the WebSocket URL for the option `url`. Throws if it is invalid. */
function addressOf(given: string): string {
  try {
    const url = new URL(given, globalThis.location?.href);
    url.protocol = url.protocol.replace(/^http/, "ws");
    if (url.pathname === "/") url.pathname = "/v1/connect";
    if (/^wss?:/.test(url.href)) return url.href;
  } catch {
    // Not a URL: reported below.
  }
  throw new GreendotError("bad_field", `invalid url ${JSON.stringify(given)}: use a URL like wss://example.com`);
}
