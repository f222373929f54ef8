// How it stands with the server: a word for every state, and where that helps a sentence and something to press.

import { setText } from "./dom.js";

const SECOND_MS = 1_000;
const PATIENCE = 2; // failures before a lost line is worth a sentence: most are back before it is read
const DOTS = { online: "online", closed: "busy" };
const PRESS = {
  wait: "Try now",
  "check-network": "Try now",
  "sign-in": "Sign in again",
  reload: "Load again",
  "use-here": "Use it here",
  ask: "Connect again",
  none: "Connect again",
};

export class ConnectionView {
  #parts; // dot, word, wait, notice, text, press
  #client;
  #again; // begins anew where the client alone would not
  #reason = null; // why it went, until it is back
  #until = 0;
  #timer;
  isQuiet = () => false; // something else tells what happens

  constructor(client, parts, again) {
    this.#client = client;
    this.#parts = parts;
    this.#again = again;
    client.on("state", () => this.draw());
    parts.press.addEventListener("click", () => this.#press());
    this.#timer = setInterval(() => this.#drawWait(), SECOND_MS);
    this.draw();
  }

  close() {
    clearInterval(this.#timer);
  }

  draw() {
    const { state, reason, failures } = this.#client.connection;
    if (state === "online") this.#reason = null;
    else if (reason) {
      this.#reason = reason;
      this.#until = Date.now() + (reason.retryInMs ?? 0);
    }
    const { dot, word, notice, text, press } = this.#parts;
    dot.dataset.state = DOTS[state] ?? "idle";
    setText(word, wordFor(state, failures, this.#reason));
    this.#drawWait();
    const shown = this.#reason !== null && this.#isWorthIt(state, failures) && !this.isQuiet();
    if (shown) {
      setText(text, sentence(state, this.#reason));
      setText(press, PRESS[this.#reason.action] ?? PRESS.wait);
    }
    notice.hidden = !shown;
    notice.dataset.action = shown ? this.#reason.action : "";
  }

  #isWorthIt(state, failures) {
    const { code } = this.#reason;
    const wasTold = typeof code === "number" && code >= 4000;
    return state === "closed" || wasTold || failures >= PATIENCE || code === "offline" || code === "no_token";
  }

  #drawWait() {
    const seconds = Math.max(0, Math.ceil((this.#until - Date.now()) / SECOND_MS));
    setText(this.#parts.wait, this.#client.state === "waiting" ? ` in ${seconds} s` : "");
  }

  #press() {
    const action = this.#reason?.action;
    if (action === "reload") location.reload();
    else if (action === "sign-in") this.#again(); // with another token
    else this.#client.connect();
  }
}

function wordFor(state, failures, reason) {
  if (state === "online") return "Connected";
  if (state === "closed") return "Stopped";
  if (state === "offline") return "No network";
  if (state === "waiting") return "Reconnecting";
  return failures || reason ? "Reconnecting…" : "Connecting…";
}

function sentence(state, { text }) {
  return state === "closed" ? text : `${text} What you write is sent when the connection is back.`;
}
