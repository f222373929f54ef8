// One socket: greeted, kept alive, asked and answered, closed. It never comes back; the wire makes another.

const WELCOME_MS = 10_000; // from opening the socket to the welcome
const ANSWER_MS = 10_000;
const PROBE_MS = 5_000;
const SILENT_BEATS = 2.5; // nothing heard for so many heartbeats means that nobody is there
const LOST = 1006;

/** The server's answer was no. `retry` says whether the same command may succeed later. */
export class Refused extends Error {
  constructor({ code, message, retry, retry_in_ms: wait }) {
    super(message);
    this.code = code;
    this.retry = Boolean(retry);
    this.retryInMs = wait ?? 1_000;
  }
}

/** The connection ended before the answer came. */
export class Lost extends Error {}

export class Link {
  #socket;
  #onEvent;
  #onEnd; // called once, with the close code and reason
  #waiting = new Map(); // command id → {resolve, reject, timer}
  #lastId = 0;
  #heard = Date.now(); // by the wall clock: it goes on while the computer sleeps
  #silentMs = Infinity;
  #timers = [];
  #probing = null;
  #refusal = null;
  open = false; // welcomed, and not yet ended

  constructor(url, hello, onEvent, onEnd) {
    this.#onEvent = onEvent;
    this.#onEnd = onEnd;
    this.#socket = new WebSocket(url);
    this.#socket.onopen = () => this.send("hello", { ...hello, id: 0 });
    this.#socket.onmessage = (message) => this.#received(message.data);
    this.#socket.onclose = (close) => this.#ended(close.code, close.reason);
    this.#timers.push(setTimeout(() => this.open || this.drop("no answer from the server"), WELCOME_MS));
  }

  /** Say something that needs no answer. Whether it was said. */
  send(type, fields = {}) {
    if (this.#socket.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ type, ...fields }));
    return true;
  }

  /** The answer's data; Refused or Lost otherwise. */
  request(type, fields = {}) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      if (!this.open || !this.send(type, { ...fields, id })) {
        reject(new Lost("not connected"));
        return;
      }
      const timer = setTimeout(() => this.#settle(id)?.reject(new Lost("no answer")), ANSWER_MS);
      this.#waiting.set(id, { resolve, reject, timer });
    });
  }

  /** Find out now whether the other side is still there, for instance after sleep. */
  probe() {
    if (!this.open) return;
    if (this.#silence() > this.#silentMs) {
      this.drop("the connection was silent");
      return;
    }
    const asked = Date.now();
    this.send("heartbeat");
    clearTimeout(this.#probing);
    this.#probing = setTimeout(() => this.#heard < asked && this.drop("no answer from the server"), PROBE_MS);
  }

  /** Give up on the socket. A dead network would let the browser wait minutes for its close. */
  drop(reason) {
    this.#socket.close();
    this.#ended(LOST, reason);
  }

  /** Leave for good. */
  bye() {
    this.send("bye");
    this.drop("bye");
  }

  #received(text) {
    this.#heard = Date.now();
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    if (frame.type === "reply") {
      this.#settle(frame.id)?.resolve(frame.data);
    } else if (frame.type === "error") {
      this.#refused(frame);
    } else {
      if (frame.type === "welcome") this.#welcomed(frame.data);
      this.#onEvent(frame.type, frame.data ?? {});
    }
  }

  #refused(frame) {
    const refusal = new Refused(frame);
    if (!this.open) {
      this.#refusal = refusal; // of the hello: there was nothing else to refuse
      this.drop(refusal.message);
      return;
    }
    this.#settle(frame.id)?.reject(refusal);
  }

  #welcomed({ heartbeat_s: beat }) {
    this.open = true;
    this.#silentMs = beat * SILENT_BEATS * 1000;
    // The first comes sooner, for each page by another time: many that came back together must not beat together.
    const first = () => {
      this.#beat();
      this.#timers.push(setInterval(() => this.#beat(), beat * 1000));
    };
    this.#timers.push(setTimeout(first, beat * 1000 * (0.5 + Math.random() / 2)));
  }

  #beat() {
    if (this.#silence() > this.#silentMs) this.drop("the connection was silent");
    else this.send("heartbeat");
  }

  #silence() {
    return Date.now() - this.#heard;
  }

  #settle(id) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    clearTimeout(waiting?.timer);
    return waiting;
  }

  #ended(code, reason) {
    if (!this.#onEnd) return;
    const tell = this.#onEnd;
    this.#onEnd = null;
    this.open = false;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    for (const timer of [...this.#timers, this.#probing]) clearTimeout(timer);
    for (const id of [...this.#waiting.keys()]) this.#settle(id).reject(new Lost(reason || "the connection was lost"));
    tell({ code, reason, refusal: this.#refusal });
  }
}
