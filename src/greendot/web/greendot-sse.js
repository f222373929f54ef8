// Event streams for pages, @greendot/client 0.1.0, Apache-2.0. Built from clients/js: npm run build:web

// src/limits.ts
var OPEN = 1;
var LOST = 1006;

// src/sse.ts
var RETRY_MS = 6e5;
var OPEN_MS = 3e3;
var KNOWN_FAILURES = 2;
var FIRST_MS = 3e3;
var PAD_BYTES = 16384;
var MOST_COMMANDS = 64;
var MOST_BYTES = 49152;
var LEAST_MS = 250;
var MOST_MS = 4e3;
var CONNECTING = 0;
var CLOSED = 3;
var GOING_AWAY = 1001;
var memories = /* @__PURE__ */ new Map();
function open(url, { fallback, webSocket }) {
  if (fallback === false) return void 0;
  const memory = memories.get(url) ?? { until: 0, passed: false, failures: 0, pad: 0 };
  memories.set(url, memory);
  if (memory.until > Date.now()) return new EventSocket(url, memory);
  return new AnySocket(url, webSocket ?? globalThis.WebSocket, memory);
}
function forget() {
  memories.clear();
}
var BaseSocket = class {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
};
var AnySocket = class extends BaseSocket {
  #socket;
  constructor(url, webSocket, memory) {
    super();
    const socket = this.#socket = new webSocket(url);
    let isOver = false;
    const giveUp = (close) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.onerror = () => {
      };
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
    socket.onclose = (close) => isOver ? this.onclose?.(close) : giveUp(close);
    socket.onerror = (error) => isOver ? this.onerror?.(error) : giveUp({ code: LOST, reason: "" });
  }
  get readyState() {
    return this.#socket.readyState;
  }
  send(text) {
    this.#socket.send(text);
  }
  close(code, reason) {
    this.#socket.close(code, reason);
  }
  #follow(socket) {
    this.#socket = socket;
    socket.onopen = (event) => this.onopen?.(event);
    socket.onmessage = (message) => this.onmessage?.(message);
    socket.onclose = (close) => this.onclose?.(close);
  }
};
var EventSocket = class extends BaseSocket {
  readyState = CONNECTING;
  #memory;
  #url;
  #stream = "";
  // id of the stream
  #seq = 0;
  // number of the last request
  #commands = [];
  // not yet in a request
  #isPosting = false;
  #aborter = new AbortController();
  #leave = () => this.close(GOING_AWAY);
  constructor(url, memory) {
    super();
    const address = new URL(url);
    address.protocol = address.protocol.replace("ws", "http");
    address.pathname = address.pathname.replace(/connect\/?$/, "events");
    address.search = "";
    this.#url = address.href;
    this.#memory = memory;
    globalThis.addEventListener?.("pagehide", this.#leave);
    void this.#run();
  }
  send(text) {
    this.#commands.push(text);
    void this.#post();
  }
  close(code = 1e3) {
    if (this.readyState === CLOSED) return;
    const isOpen = this.readyState === OPEN;
    this.readyState = CLOSED;
    const sent = isOpen ? this.#request(this.#commands.splice(0, MOST_COMMANDS), code) : Promise.resolve();
    void sent.catch(() => {
    }).then(() => this.#end(LOST, ""));
  }
  // Down
  async #run() {
    const memory = this.#memory;
    if (await this.#read(memory.pad) && !memory.pad) {
      memory.pad = PAD_BYTES;
      await this.#read(memory.pad);
    }
    this.#end(LOST, "");
  }
  /** Read a stream to its end. Returns whether its first event did not come in time. */
  async #read(pad) {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), FIRST_MS);
    const abort = () => late.abort();
    this.#aborter.signal.addEventListener("abort", abort);
    try {
      const answer = await fetch(this.#url + (pad ? `?pad=${pad}` : ""), {
        headers: { accept: "text/event-stream" },
        cache: "no-store",
        signal: late.signal
      });
      if (!answer.ok || !answer.body) return false;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const events = (rest + part.value).split("\n\n");
        rest = events.pop();
        for (const event of events) this.#received(event);
        if (this.#stream) clearTimeout(timer);
      }
    } catch {
    } finally {
      clearTimeout(timer);
      this.#aborter.signal.removeEventListener("abort", abort);
    }
    return late.signal.aborted && this.readyState === CONNECTING;
  }
  #received(event) {
    if (this.readyState === CLOSED) return;
    const fields = Object.fromEntries(event.split("\n").map((line) => [line.split(":", 1)[0], line.replace(/^.*?: ?/, "")]));
    if (!("data" in fields)) return;
    const { event: type, data } = fields;
    if (type === "stream") {
      this.#stream = JSON.parse(data).stream;
      this.readyState = OPEN;
      this.#memory.until = Date.now() + RETRY_MS;
      this.#memory.passed = false;
      this.onopen?.({});
    } else if (type === "close") {
      const { code, reason } = JSON.parse(data);
      this.#end(code, reason);
    } else this.onmessage?.({ data });
  }
  // Up
  /** Send the commands that wait, one request after the other. */
  async #post() {
    if (this.#isPosting) return;
    this.#isPosting = true;
    await null;
    while (this.#commands.length && this.readyState === OPEN) {
      if (!await this.#deliver(this.#batch())) this.#end(LOST, "the server does not know the stream");
    }
    this.#isPosting = false;
  }
  #batch() {
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
  async #deliver(commands) {
    const seq = ++this.#seq;
    for (let pause = LEAST_MS; this.readyState === OPEN; pause = Math.min(2 * pause, MOST_MS)) {
      let waitMs = pause;
      try {
        const { ok, status, headers } = await this.#request(commands, null, seq);
        if (ok) return true;
        if (status !== 429 && status < 500) return false;
        waitMs = Math.max(pause, 1e3 * Number(headers.get("retry-after") ?? 0) || 0);
      } catch {
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
    return true;
  }
  #request(commands, close, seq = ++this.#seq) {
    return fetch(`${this.#url}/${this.#stream}`, {
      method: "POST",
      headers: { "content-type": "text/plain" },
      // needs no preflight request to another origin
      body: `{"seq":${seq},"close":${close},"commands":[${commands}]}`,
      keepalive: close !== null
      // the request outlives the page
    });
  }
  #end(code, reason) {
    globalThis.removeEventListener?.("pagehide", this.#leave);
    this.readyState = CLOSED;
    this.#aborter.abort();
    const { onclose } = this;
    this.onclose = null;
    onclose?.({ code, reason });
  }
};
export {
  forget,
  open
};
