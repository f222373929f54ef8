// Simulated outage of one device: a WebSocket class for the client that can be interrupted.
//
//   in ──► cut      the sockets break without a close frame, and new ones fail
//      └─► silent   no data is sent or received, and no socket is closed; data sent meanwhile arrives after the outage,
//                   as with TCP

const LOST = 1006;
const CUT = 4900; // the server treats it as a lost socket; used if the server could not break the connection
const PATIENCE_MS = 30_000; // for the server to close sockets that the client gave up while silent

export class Plug {
  state = "in"; // in, cut, silent
  since = 0; // start of the outage
  #sockets = new Set();
  #breakLine; // breaks this device's connection at the server; resolves to true if that succeeded

  constructor(breakLine) {
    this.#breakLine = breakLine;
  }

  /** Return the WebSocket class for the client. */
  get webSocket() {
    const plug = this;
    return class {
      constructor(url) {
        return new Wire(plug, url);
      }
    };
  }

  pull(how) {
    if (this.state !== "in") return;
    this.state = how;
    this.since = Date.now();
    if (how === "cut") this.#break();
  }

  /** End the outage. Return its duration in milliseconds. */
  push() {
    const away = Date.now() - this.since;
    this.state = "in";
    for (const socket of [...this.#sockets]) socket.resume();
    return away;
  }

  add(socket) {
    this.#sockets.add(socket);
  }

  remove(socket) {
    this.#sockets.delete(socket);
  }

  async #break() {
    const broken = [...this.#sockets];
    for (const socket of broken) socket.lose();
    await this.#breakLine().catch(() => false);
    // The server breaks one connection. A socket that was not connected yet must not stay open unread.
    for (const socket of broken) socket.end(CUT);
  }
}

/** The part of WebSocket that the client uses. */
class Wire {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  #plug;
  #socket = null; // null if the socket was created during an outage
  #held = []; // events and sends that wait while silent
  #given = false; // the client has given up this socket

  constructor(plug, url) {
    this.#plug = plug;
    plug.add(this);
    if (plug.state === "in") this.#open(url);
    else if (plug.state === "cut") setTimeout(() => this.lose());
  }

  get readyState() {
    return this.#given ? WebSocket.CLOSED : (this.#socket?.readyState ?? WebSocket.CONNECTING);
  }

  send(text) {
    this.#now(() => this.#socket.readyState === WebSocket.OPEN && this.#socket.send(text));
  }

  /** Close the socket. While silent no close frame can be sent. */
  close(code, reason) {
    if (this.#plug.state === "in") this.#socket?.close(code, reason);
    else this.#given = true;
  }

  /** Report a lost socket to the client. */
  lose() {
    if (this.#given) return;
    this.#given = true;
    this.#plug.remove(this);
    this.onclose?.({ code: LOST, reason: "" });
  }

  end(code) {
    this.#socket?.close(code);
  }

  /** Continue after the outage. */
  resume() {
    if (!this.#socket) return this.lose();
    const held = this.#held.splice(0);
    if (this.#given) {
      // Another connection resumes the session, and the server closes this one.
      setTimeout(() => this.end(1000), PATIENCE_MS);
      this.#plug.remove(this);
      return;
    }
    for (const event of held) event();
  }

  #open(url) {
    const socket = new WebSocket(url);
    this.#socket = socket;
    for (const type of ["onopen", "onmessage", "onclose"]) {
      socket[type] = (event) => this.#now(() => this.#given || this[type]?.(event));
    }
    socket.addEventListener("close", () => this.#plug.state === "in" && this.#plug.remove(this));
  }

  #now(event) {
    if (this.#plug.state === "silent") this.#held.push(event);
    else event();
  }
}
