// Socket to the server: hello with the key, then requests with replies, and events.

const FIRST_MS = 500;
const LONGEST_MS = 10_000;
const SILENT_MS = 8000; // samples come every second: a socket that is silent for longer is dead
const ANSWER_MS = 10_000;

/** Connection to the server. It reconnects until it is closed or the key is refused. */
export class Link {
  /** `heard(type, data, ts)` receives events, `changed(state, words)` the state of the connection. */
  constructor(key, heard, changed) {
    Object.assign(this, { key, heard, changed });
    this.waiting = new Map();
    this.numbers = 0;
    this.attempts = 0;
    this.closed = false;
    this.open();
  }

  open() {
    const url = new URL("/admin/live", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    this.changed("connecting", this.attempts ? "Reconnecting…" : "Connecting…");
    const socket = (this.socket = new WebSocket(url));
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: "hello", key: this.key }));
      this.expect();
    };
    socket.onmessage = (event) => this.received(JSON.parse(event.data));
    socket.onclose = (event) => this.ended(event);
  }

  received(frame) {
    this.expect();
    if (frame.type === "reply" || frame.type === "error") {
      const asked = this.waiting.get(frame.id);
      this.waiting.delete(frame.id);
      if (frame.type === "reply") asked?.resolve(frame.data);
      else asked?.reject(new Error(frame.message));
      return;
    }
    if (frame.type === "welcome") {
      this.attempts = 0;
      this.changed("open", "Live");
    }
    this.heard(frame.type, frame.data, frame.ts);
  }

  /** Send a request and resolve to its reply. Rejects with an Error whose message can be shown. */
  ask(command) {
    return new Promise((resolve, reject) => {
      if (this.socket.readyState !== WebSocket.OPEN) {
        reject(new Error("The page is not connected to the server. Wait until it has reconnected."));
        return;
      }
      const id = ++this.numbers;
      this.waiting.set(id, { resolve, reject });
      setTimeout(() => {
        if (this.waiting.delete(id)) reject(new Error("The server did not answer within 10 s. Try again."));
      }, ANSWER_MS);
      this.socket.send(JSON.stringify({ ...command, id }));
    });
  }

  expect() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.socket.close(), SILENT_MS);
  }

  ended(event) {
    clearTimeout(this.silence);
    for (const { reject } of this.waiting.values()) reject(new Error("The connection was lost. Try again when the page has reconnected."));
    this.waiting.clear();
    if (this.closed) return;
    if (event.code >= 4500) {
      this.closed = true;
      this.changed("refused", event.reason);
      return;
    }
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.attempts++);
    const wait = most * (0.5 + Math.random() / 2); // jitter, so that not all pages reconnect at once
    const words = event.reason ? `${event.reason}.` : "The connection was lost.";
    this.changed("lost", `${words} Reconnecting in ${Math.ceil(wait / 1000)} s.`);
    this.again = setTimeout(() => this.open(), wait);
  }

  close() {
    this.closed = true;
    clearTimeout(this.again);
    clearTimeout(this.silence);
    this.socket.close();
  }
}
