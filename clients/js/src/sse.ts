// Event streams, for networks where WebSockets do not pass: Server-Sent Events down, commands in requests up.
//
// The client loads this module after its first failed upgrade. From then on each attempt opens a WebSocket, and an event
// stream if that fails. A page that needed an event stream opens event streams only, for RETRY_MS. Then the next attempt
// begins with a WebSocket again.

import { LOST, OPEN } from "./limits.js";
import type { GreendotOptions, Socket, WebSocketMaker } from "./options.js";

const RETRY_MS = 600_000; // time after which a WebSocket is tried again
const OPEN_MS = 3_000; // for a WebSocket to open
const KNOWN_FAILURES = 2; // failed attempts before an event stream, if a WebSocket has passed before
const FIRST_MS = 3_000; // for the first event; a proxy that takes longer holds the response back until a buffer is full
const PAD_BYTES = 16_384; // padding that fills the buffers of such a proxy
const MOST_COMMANDS = 64; // in one request
const MOST_BYTES = 49_152; // of the commands in one request, unless it is a single one
const LEAST_MS = 250; // pause before a request is repeated; it doubles
const MOST_MS = 4_000;
const CONNECTING = 0; // WebSocket.CONNECTING
const CLOSED = 3; // WebSocket.CLOSED
const GOING_AWAY = 1001;

/** Knowledge about a server's URL, for the life of the page. */
interface Memory {
  /** Time until which only event streams are opened. */
  until: number;
  /** Whether a WebSocket has passed, and no event stream was needed since. */
  passed: boolean;
  /** Failed WebSockets since one passed. */
  failures: number;
  /** Bytes of padding that the server is asked for. */
  pad: number;
}

const memories = new Map<string, Memory>();

/** Open a WebSocket or an event stream, whichever passes. Returns undefined if the options forbid event streams. */
export function open(url: string, { fallback, webSocket }: GreendotOptions): Socket | undefined {
  if (fallback === false) return undefined;
  const memory = memories.get(url) ?? { until: 0, passed: false, failures: 0, pad: 0 };
  memories.set(url, memory);
  if (memory.until > Date.now()) return new EventSocket(url, memory);
  return new AnySocket(url, webSocket ?? globalThis.WebSocket, memory);
}

/** Forget all servers. For tests. */
export function forget(): void {
  memories.clear();
}

abstract class BaseSocket implements Socket {
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  onerror: Socket["onerror"] = null;
  abstract readonly readyState: number;
  abstract send(text: string): void;
  abstract close(code?: number, reason?: string): void;
}

/** WebSocket, or an event stream if the WebSocket does not open. */
class AnySocket extends BaseSocket {
  #socket: Socket;

  constructor(url: string, webSocket: WebSocketMaker, memory: Memory) {
    super();
    const socket = (this.#socket = new webSocket(url));
    let isOver = false; // opened or given up
    const giveUp = (close: unknown) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.onerror = () => {}; // without a handler ws throws
      socket.close();
      memory.failures += 1;
      if (memory.passed && memory.failures <= KNOWN_FAILURES) return this.onclose?.(close);
      this.#follow(new EventSocket(url, memory));
    };
    const timer = setTimeout(giveUp, OPEN_MS, { code: LOST, reason: "" });
    this.#follow(socket);
    socket.onopen = (event) => {
      isOver = true;
      clearTimeout(timer);
      Object.assign(memory, { passed: true, failures: 0, until: 0 });
      this.onopen?.(event);
    };
    socket.onclose = (close) => (isOver ? this.onclose?.(close) : giveUp(close));
    socket.onerror = (error) => (isOver ? this.onerror?.(error) : giveUp({ code: LOST, reason: "" }));
  }

  get readyState(): number {
    return this.#socket.readyState;
  }

  send(text: string): void {
    this.#socket.send(text);
  }

  close(code?: number, reason?: string): void {
    this.#socket.close(code, reason);
  }

  #follow(socket: Socket): void {
    this.#socket = socket;
    socket.onopen = (event) => this.onopen?.(event);
    socket.onmessage = (message) => this.onmessage?.(message);
    socket.onclose = (close) => this.onclose?.(close);
  }
}

/** Event stream with the interface of a WebSocket. */
class EventSocket extends BaseSocket {
  readyState = CONNECTING;
  #memory: Memory;
  #url: string;
  #stream = ""; // id of the stream
  #seq = 0; // number of the last request
  #commands: string[] = []; // not yet in a request
  #isPosting = false;
  #aborter = new AbortController();
  #leave = () => this.close(GOING_AWAY);

  constructor(url: string, memory: Memory) {
    super();
    const address = new URL(url);
    address.protocol = address.protocol.replace("ws", "http");
    address.pathname = address.pathname.replace(/connect\/?$/, "events");
    address.search = "";
    this.#url = address.href;
    this.#memory = memory;
    // A page that is left ends its requests without a word. The grace of a lost connection would be longer.
    globalThis.addEventListener?.("pagehide", this.#leave);
    void this.#run();
  }

  send(text: string): void {
    this.#commands.push(text);
    void this.#post();
  }

  close(code = 1000): void {
    if (this.readyState === CLOSED) return;
    const isOpen = this.readyState === OPEN;
    this.readyState = CLOSED;
    const sent = isOpen ? this.#request(this.#commands.splice(0, MOST_COMMANDS), code) : Promise.resolve();
    void sent.catch(() => {}).then(() => this.#end(LOST, ""));
  }

  // Down

  async #run(): Promise<void> {
    const memory = this.#memory;
    if ((await this.#read(memory.pad)) && !memory.pad) {
      memory.pad = PAD_BYTES;
      await this.#read(memory.pad);
    }
    this.#end(LOST, "");
  }

  /** Read a stream to its end. Returns whether its first event did not come in time. */
  async #read(pad: number): Promise<boolean> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), FIRST_MS);
    const abort = () => late.abort();
    this.#aborter.signal.addEventListener("abort", abort);
    try {
      const answer = await fetch(this.#url + (pad ? `?pad=${pad}` : ""), {
        headers: { accept: "text/event-stream" },
        cache: "no-store",
        signal: late.signal,
      });
      if (!answer.ok || !answer.body) return false;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const events = (rest + part.value).split("\n\n");
        rest = events.pop()!;
        for (const event of events) this.#received(event);
        if (this.#stream) clearTimeout(timer);
      }
    } catch {
      // The network failed, or the stream was aborted.
    } finally {
      clearTimeout(timer);
      this.#aborter.signal.removeEventListener("abort", abort);
    }
    return late.signal.aborted && this.readyState === CONNECTING;
  }

  #received(event: string): void {
    if (this.readyState === CLOSED) return;
    const fields = Object.fromEntries(event.split("\n").map((line) => [line.split(":", 1)[0], line.replace(/^.*?: ?/, "")]));
    if (!("data" in fields)) return; // padding
    const { event: type, data } = fields;
    if (type === "stream") {
      this.#stream = JSON.parse(data!).stream;
      this.readyState = OPEN;
      this.#memory.until = Date.now() + RETRY_MS;
      this.#memory.passed = false;
      this.onopen?.({});
    } else if (type === "close") {
      const { code, reason } = JSON.parse(data!);
      this.#end(code, reason);
    } else this.onmessage?.({ data });
  }

  // Up

  /** Send the commands that wait, one request after the other. */
  async #post(): Promise<void> {
    if (this.#isPosting) return;
    this.#isPosting = true;
    await null; // commands of one turn share a request
    while (this.#commands.length && this.readyState === OPEN) {
      if (!(await this.#deliver(this.#batch()))) this.#end(LOST, "the server does not know the stream");
    }
    this.#isPosting = false;
  }

  #batch(): string[] {
    let bytes = 0;
    let count = 0;
    for (const command of this.#commands.slice(0, MOST_COMMANDS)) {
      bytes += new TextEncoder().encode(command).length;
      if (count && bytes > MOST_BYTES) break;
      count += 1;
    }
    return this.#commands.splice(0, count);
  }

  /** Repeat a request until the server has taken it. Returns false if it never will. */
  async #deliver(commands: string[]): Promise<boolean> {
    const seq = ++this.#seq;
    for (let pause = LEAST_MS; this.readyState === OPEN; pause = Math.min(2 * pause, MOST_MS)) {
      let waitMs = pause;
      try {
        const { ok, status, headers } = await this.#request(commands, null, seq);
        if (ok) return true;
        if (status !== 429 && status < 500) return false;
        waitMs = Math.max(pause, 1_000 * Number(headers.get("retry-after") ?? 0) || 0);
      } catch {
        // The commands may have been taken and the answer lost: the server knows by the number of the request.
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
    return true;
  }

  #request(commands: string[], close: number | null, seq = ++this.#seq): Promise<Response> {
    return fetch(`${this.#url}/${this.#stream}`, {
      method: "POST",
      headers: { "content-type": "text/plain" }, // needs no preflight request to another origin
      body: `{"seq":${seq},"close":${close},"commands":[${commands}]}`,
      keepalive: close !== null, // the request outlives the page
    });
  }

  #end(code: number, reason: string): void {
    globalThis.removeEventListener?.("pagehide", this.#leave);
    this.readyState = CLOSED;
    this.#aborter.abort();
    const { onclose } = this;
    this.onclose = null;
    onclose?.({ code, reason });
  }
}
