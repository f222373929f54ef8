// The socket to the server: who we are comes first, then questions with their answers, and what comes by itself.

const FIRST_MS = 500;
const LONGEST_MS = 10_000;
const SILENT_MS = 8000; // a sample comes every second: silence for so long is a dead socket
const ANSWER_MS = 10_000;

/** Opens itself again until it is closed, or told that the key is not good. */
export class Link {
  /** `heard(type, data, ts)` gets what comes by itself, `changed(state, words)` how the link is. */
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
    this.changed("connecting", this.attempts ? "Connecting again…" : "Connecting…");
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

  /** Ask, and wait for the answer. An Error with words to show if it is refused. */
  ask(command) {
    return new Promise((resolve, reject) => {
      if (this.socket.readyState !== WebSocket.OPEN) {
        reject(new Error("There is no connection to the server at the moment."));
        return;
      }
      const id = ++this.numbers;
      this.waiting.set(id, { resolve, reject });
      setTimeout(() => {
        if (this.waiting.delete(id)) reject(new Error("The server did not answer in time."));
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
    for (const { reject } of this.waiting.values()) reject(new Error("The connection was lost."));
    this.waiting.clear();
    if (this.closed) return;
    if (event.code >= 4500) {
      this.closed = true;
      this.changed("refused", event.reason);
      return;
    }
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.attempts++);
    const wait = most * (0.5 + Math.random() / 2); // not all pages at once
    const words = event.reason ? `${event.reason}.` : "The connection was lost.";
    this.changed("lost", `${words} Trying again in ${Math.ceil(wait / 1000)} s.`);
    this.again = setTimeout(() => this.open(), wait);
  }

  close() {
    this.closed = true;
    clearTimeout(this.again);
    clearTimeout(this.silence);
    this.socket.close();
  }
}
