// Session of a client: connects to the server, and connects again after each lost connection.
//
// A link is one connection. On each link, the client first sends the command `hello`. The server answers with the event
// `welcome`.
//
// States of a session:
//
//   idle ──► connecting ──► online ──► waiting | offline ──► connecting …
//
// In state `waiting`, the session waits for the time of the next attempt. In state `offline`, the device has no network.
//
// - If an attempt fails, the session goes from `connecting` to `waiting` or `offline`.
// - If the device loses the network, the session goes from `waiting` to `offline`.
// - If the network returns, the session goes from `offline` to `waiting`.
// - If the token has expired, or if the server refuses the token, the session connects again at once, with another token.
//   If this token has expired as well, the session goes to `waiting` or `offline`. If the server refuses this token as well,
//   the session goes to `closed`.
// - If the program calls `close`, if no user is signed in, or if the server forbids a reconnect, the session goes to `closed`.
// - If the program calls `connect`, the session goes to `connecting`, unless it is online.

import { backoff, BACKOFF } from "./backoff.js";
import { type Clock, pause, systemClock } from "./clock.js";
import { Emitter } from "./emitter.js";
import { because, GreendotError } from "./errors.js";
import { BAD_TOKEN, CALM_MS, EXPIRED, LATE_MS, PREPARED_MS, REPLACED, RETRY_MS, STEADY_MS } from "./limits.js";
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

// Types of events that the program can listen to.
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

/** Callbacks of a session. The client implements them. */
export interface SessionCallbacks {
  /**
   * Return the fields of the command `hello`, such as the token and the point from which the server continues: the id of the
   * device's last session on the server (not of this `Session`), and the `seq` of the last message of each room and of the last
   * notification. `owner` is the text `TENANT/USER`, from the token. Stored data belongs to one owner.
   */
  _hello(token: string, owner: string): Promise<object>;
  /** Process an event of the server. */
  event(frame: RawEvent): void;
  /** Add listeners to the page. Returns functions that remove these listeners when the session closes. */
  _listen(page: Page): Undo[];
  /** Process the loss of the connection. */
  _lost(): void;
  /** Process the close of the session. Commands that wait for a connection fail with `error`. */
  _closed(error: GreendotError): void;
}

// Function that opens a WebSocket or, if the network lets no WebSocket through, an event stream (see `sse.ts`). The client
// loads this function after the first WebSocket that does not open, and calls it for all later attempts.
let openAny: typeof import("./sse.js").open | undefined;

export class Session {
  /**
   * State of the connection. In the states `waiting`, `offline` and `closed`, `reason` explains why the client is not
   * online. In the other states, `reason` is null.
   */
  connection: Connection = { state: "idle", reason: null, failures: 0 };
  /** Data of the last event `welcome`. */
  welcome: Welcome | null = null;
  readonly _clock: Clock;
  readonly _page: Page | null;
  readonly _cursors: Cursors;
  readonly _events: Emitter<ClientEvents>;
  readonly _outbox: Outbox;
  #options: GreendotOptions;
  #callbacks: SessionCallbacks;
  #tokens: Tokens;
  _random: () => number;
  #url: string;
  #webSocket: WebSocketMaker | undefined;
  #link: Link | null = null;
  #attempt = 0; // number of the current attempt; the session ignores results of older attempts
  #failures = 0; // failed attempts and lost connections in a row; a connection of more than STEADY_MS ends the row
  #onlineAt = Infinity; // time of the event `welcome`; Infinity without a connection
  #lostHelloAt = -Infinity; // time when a connection was lost before the answer to its `hello`
  #ahead = 0; // server's time minus local time, in milliseconds
  #hintMs: number | null = null; // shortest delay before the next attempt, from the server; null: none
  #notBefore = 0; // before this time, `#wake` makes no attempt
  #anotherToken = true; // if the token has expired or is refused: whether to try another token at once
  // Cancels the current timer. In state `connecting`, this timer ends an attempt if `getToken` or the storage takes too long.
  // In the states `waiting` and `offline`, the timer starts the next attempt.
  #timer: Undo = () => {};
  #refreshing: Undo = () => {}; // cancels the timer of the token refresh
  #unlisten: Undo[] = []; // functions that remove the listeners of the page

  constructor(options: GreendotOptions, callbacks: SessionCallbacks) {
    const { clock = systemClock, random = Math.random, page = browserPage(), storage = new Map() as unknown as Store } = options;
    this.#options = options;
    this.#callbacks = callbacks;
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

  /** Whether the server has sent the event `welcome` on the current connection. */
  get online(): boolean {
    return this.#link?.open ?? false;
  }

  /** Intervals of typing reports, in milliseconds. The server sets these intervals. */
  get typing(): TypingTimes {
    return this.welcome?.typing ?? TYPING;
  }

  /** Whether the page is visible. Without a page, the value is true. */
  get visible(): boolean {
    return this._page?.isVisible() ?? true;
  }

  /** Return the estimated time of the server. */
  now(): number {
    return this._clock.now() + this.#ahead;
  }

  // Commands of rooms, inbox and presence

  /** Send a command if there is a connection. Returns whether the client has sent the command. */
  _trySend(type: string, fields?: object): boolean {
    return this.#link?._trySend(encode(type, fields)) ?? false;
  }

  /** Send a signal. Returns whether the client has sent the signal. With `reply`, returns a promise of the answer instead. */
  signal(fields: object, { key, reply }: SignalOptions = {}): boolean | Promise<void> {
    const sent = { ...fields, key };
    return reply ? this.ask("signal.send", sent) : this._trySend("signal.send", sent);
  }

  /**
   * Send a command on the current connection, and return the data of the answer. If the answer is a temporary error, such as
   * `rate_limited`, the client sends the command again after a pause. The code `internal` is an exception: it is a temporary
   * error too, but the call fails at once. Without a connection, or if the connection is lost, the call fails with
   * `disconnected`.
   *
   * `fold` is called with the data of the answer, before the client processes any later message of the server. Code
   * that awaits the promise may run after these messages.
   */
  async ask<Reply>(type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const link = this.#link;
    for (;;) {
      try {
        return await this.#request(encode(type, fields), fold, link);
      } catch (error) {
        const { code, retry, retryInMs } = error as GreendotError;
        if (!retry || code === "disconnected" || code === "internal") throw error;
        await pause(this._clock, retryInMs);
      }
    }
  }

  /**
   * Send a command, and return the data of the answer. Without a connection, the command waits for the next connection. If
   * the connection is lost before the answer, the client sends the command again. So the command must be idempotent. The call
   * fails if the server refuses the command for good, if the session is closed, or if too many commands wait.
   *
   * The client sends commands with the same `lane` one by one: each command waits for the answer to the previous command.
   * For `fold`, see `ask`.
   */
  async _queue<Reply>(lane: Lane, type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const { state, reason } = this.connection;
    if (state === "closed") throw new GreendotError("closed", reason!.text);
    return this._outbox.send(lane, encode(type, fields), fold);
  }

  /** Emit the event `error`, for an error that no promise reports. */
  _failed = (error: GreendotError): void => this._events.emit("error", error);

  /** Log an error that a listener of the event `type` has thrown, and emit the event `error`. */
  _threw = (error: unknown, type?: unknown): void => {
    console.error("greendot: a listener threw", error);
    // If a listener of `error` throws, the client does not emit this error. The listener would throw again, without end.
    if (type !== "error") this._failed(because("listener", "a listener threw", error));
  };

  #request = <Reply>(command: string, fold?: (reply: Reply) => void, link = this.#link): Promise<Reply> => {
    return link ? link.request(command, fold) : Promise.reject(disconnected());
  };

  // The connection

  /** Connect. In state `waiting` or `offline`, make the next attempt now. */
  connect(): void {
    const { state } = this.connection;
    // The constructor does not check this, because server rendering creates clients that never connect.
    if (!this.#webSocket) throw new GreendotError("bad_field", "no global WebSocket: set `webSocket`");
    if (state === "online" || state === "connecting") return;
    if (state === "idle" || state === "closed") {
      this.#failures = 0;
      this.#anotherToken = true;
      this.#listen();
    }
    void this.#connect();
  }

  /**
   * Close the connection, and do not connect again. If `bye` is true, the server ends its session of this device at once.
   * Otherwise, the server waits some seconds for the device to return.
   */
  close(bye: boolean): void {
    if (this.connection.state !== "closed") this.#stop("closed", "", bye);
  }

  async #connect(): Promise<void> {
    const attempt = ++this.#attempt;
    const tokens = this.#tokens;
    this.#timer();
    // If `getToken` or the storage does not answer, end this attempt, and plan the next one.
    this.#timer = this._clock.after(PREPARED_MS, () => {
      this.#attempt += 1;
      this.#wait("no_token", "getToken or the storage did not answer");
    });
    this.#become("connecting", null);
    let link: Link | undefined;
    try {
      const token = await tokens.current(this.now());
      if (attempt !== this.#attempt) return;
      if (token === null) return this.#stop("signed_out");
      const hello = await this.#callbacks._hello(token, tokens._claims._owner);
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
      // The callback sends the commands that restore rooms, inbox and presence. Listeners of the event `state` may send
      // commands, too. So the callback comes first.
      this.#callbacks.event(frame);
      this.#become("online", null);
      return;
    }
    if (frame.type === "drain" || frame.type === "overloaded") this.#hintMs = data.retry_in_ms;
    this.#callbacks.event(frame);
  }

  /** Process the end of the link. Connect again at once with another token, plan the next attempt, or close the session. */
  #ended({ code, _detail: detail, _refusal: refusal, _opened: opened }: LinkEnd): void {
    this.#link = null;
    this.#refreshing();
    const now = this._clock.now();
    if (now - this.#onlineAt > STEADY_MS) {
      this.#failures = 0;
      this.#anotherToken = true;
    }
    // The server may execute the `hello` of a lost connection late. It then moves the session to that connection, and closes
    // this one as replaced. No other window has the session, so the client connects again.
    const isReplacedByItself = code === REPLACED && now - this.#lostHelloAt < LATE_MS;
    this.#lostHelloAt = this.#onlineAt === Infinity && opened && !refusal && !isFinal(code) ? now : -Infinity;
    if (!opened) import("./sse.js").then(({ open }) => (openAny = open), () => {});
    this.#onlineAt = Infinity;
    this.#callbacks._lost();
    if (code === EXPIRED || code === BAD_TOKEN) {
      this.#tokens._forget(code === EXPIRED ? "expired" : "refused");
      if (this.#anotherToken) {
        this.#anotherToken = false;
        return void this.#connect();
      }
    }
    if (refusal) this.#hintMs = refusal.retryInMs;
    if (isReplacedByItself) this.#wait("lost", detail);
    else if (isFinal(code)) this.#stop(code, detail);
    else if (refusal && !refusal.retry) this.#stop(refusal.code, detail);
    else this.#wait(opened ? code : "unreachable", detail);
  }

  /** Plan the next attempt, after a failed attempt or a lost connection. `code` and `detail` give the reason. */
  #wait(code: number | string, detail: string): void {
    this.#timer();
    const bounds = { ...BACKOFF, ...this.#options.backoff };
    const isOnline = this._page?.isOnline() ?? true;
    // The page may be wrong about the network. So the client makes attempts in state `offline`, too, but rarely.
    const ms = isOnline ? Math.round(backoff(this.#failures, this.#hintMs, this._random, bounds)) : bounds.capMs;
    if (code !== "offline") {
      this.#notBefore = this._clock.now() + Math.max(CALM_MS, this.#hintMs ?? 0);
      this.#failures += 1;
    }
    this.#hintMs = null;
    this.#timer = this._clock.after(ms, () => void this.#connect());
    this.#become(isOnline ? "waiting" : "offline", reasonFor(isOnline ? code : "offline", detail, ms));
  }

  /** Close the session. `code` and `detail` give the reason. */
  #stop(code: number | string, detail = "", bye = false): void {
    const reason = reasonFor(code, detail);
    const link = this.#link;
    this.#attempt += 1;
    this.#link = null; // first, because `_leave` ends the link: only the end of the link in `#link` starts a reconnect
    link?._leave(bye);
    this.#tokens._forget("first"); // another user may sign in before the next `connect`
    this.#timer();
    this.#refreshing();
    for (const undo of this.#unlisten.splice(0)) undo();
    this.#callbacks._closed(new GreendotError("closed", detail || reason.text));
    this.#become("closed", reason);
  }

  #become(state: ConnectionState, reason: Reason | null): void {
    this.connection = { state, reason, failures: this.#failures };
    this._events.emit("state", this.connection);
  }

  // The page

  /** Listen to events of the page, until the session is closed. */
  #listen(): void {
    const { _page: page } = this;
    if (!page || this.#unlisten.length) return;
    this.#unlisten = [
      page.on("network", () => this.#wake()),
      page.on("visibility", () => page.isVisible() && this.#wake()),
      ...this.#callbacks._listen(page),
    ];
  }

  /**
   * Called if the network may have changed, or if the page has become visible. If there is a connection, check it.
   * Otherwise, make the next attempt soon.
   */
  #wake(): void {
    const { state } = this.connection;
    if (this.#link) return this.#link._probe();
    if (state !== "waiting" && state !== "offline") return;
    const ms = Math.max(this.#notBefore - this._clock.now(), 0);
    if (this._page!.isOnline()) {
      this.#timer();
      this.#timer = this._clock.after(ms, () => void this.#connect());
      if (state === "offline") this.#become("waiting", reasonFor("lost", "", ms));
    } else if (state === "waiting") this.#wait("offline", ""); // without a network, the attempt would fail
  }

  // The token

  /**
   * Refresh the token after `ms`; by default shortly before the token expires. If the refresh fails with a temporary error, the
   * client tries again, after a delay that grows with `attempt`. `attempt` is the number of this attempt, from 1.
   */
  #refreshIn(ms = this.#tokens._refreshInMs(this.now(), this._random), attempt = 1): void {
    if (ms !== null) this.#refreshing = this._clock.after(ms, () => void this.#refresh(attempt));
  }

  /** Get a new token, and send it to the server on the current connection. */
  async #refresh(attempt: number): Promise<void> {
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
      // If the error is not temporary (the server has refused the token), get another token for the next connection.
      if (!(error as GreendotError).retry) return tokens._forget("refused");
      this.#refreshIn(RETRY_MS + backoff(attempt, null, this._random), attempt + 1);
    }
  }
}

/** Return the WebSocket URL for the option `url`. Throws if the option is invalid. */
function addressOf(given: string): string {
  try {
    const url = new URL(given, globalThis.location?.href);
    url.protocol = url.protocol.replace(/^http/, "ws");
    if (url.pathname === "/") url.pathname = "/v1/connect";
    if (/^wss?:/.test(url.href)) return url.href;
  } catch {
    // `given` is not a URL: see the error below
  }
  throw new GreendotError("bad_field", `invalid url ${JSON.stringify(given)}: use a URL like wss://example.com`);
}
