// State of the connection: a word for each state and, for longer outages, a notice with a button.

import { setText } from "./dom.js";

const SECOND_MS = 1_000;
const PATIENCE = 2; // failures before the notice is shown: most connections return earlier
const DOTS = { online: "online", closed: "busy" };
const PRESS = {
  wait: "Try now",
  "check-network": "Try now",
  "sign-in": "Sign in again",
  reload: "Reload",
  "use-here": "Connect here",
  ask: "Reconnect",
  none: "Reconnect",
};

export class ConnectionView {
  #parts; // dot, word, wait, notice, text, press
  #client;
  #again; // starts again with a new token
  #reason = null; // reason of the loss, until the connection is back
  #until = 0;
  #timer;
  isQuiet = () => false; // true while the outage text is shown

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
    else if (action === "sign-in") this.#again(); // with a new token
    else this.#client.connect();
  }
}

function wordFor(state, failures, reason) {
  if (state === "online") return "Connected";
  if (state === "closed") return "Disconnected";
  if (state === "offline") return "No network";
  if (state === "waiting") return "Reconnecting";
  return failures || reason ? "Reconnecting…" : "Connecting…";
}

function sentence(state, { text }) {
  return state === "closed" ? text : `${text} Your messages are sent when the connection is back.`;
}
