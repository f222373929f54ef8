// The plug of one device: the WebSocket a client is given, with a wire that can be cut.
//
//   in ──► cut      the sockets break without a word, and no new one can be had
//      └─► silent   nothing goes out or comes in any more, and nobody is told; what was sent meanwhile arrives
//                   when the plug is back, as TCP would bring it

const LOST = 1006;
const CUT = 4900; // to a server this is as good as a lost socket; only where it could not be asked to break it
const PATIENCE_MS = 30_000; // for the server to close sockets that were given up while silent

export class Plug {
  state = "in"; // in, cut, silent
  since = 0; // when it was pulled
  #sockets = new Set();
  #breakLine; // breaks this device's connection at the server; resolves to whether that was done

  constructor(breakLine) {
    this.#breakLine = breakLine;
  }

  /** What to give a client as its WebSocket. */
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

  /** Put it back. How long it was out. */
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
    if (!(await this.#breakLine().catch(() => false))) for (const socket of broken) socket.end(CUT);
  }
}

/** As much of a WebSocket as the client uses. */
class Wire {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  #plug;
  #socket = null; // none where the plug was out from the beginning
  #held = []; // what happened, or was to be sent, while silent
  #given = false; // up: the client does not want it any more

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

  /** The client is done with it. While silent not even that can be said. */
  close(code, reason) {
    if (this.#plug.state === "in") this.#socket?.close(code, reason);
    else this.#given = true;
  }

  /** The socket breaks, as far as the client can tell. */
  lose() {
    if (this.#given) return;
    this.#given = true;
    this.#plug.remove(this);
    this.onclose?.({ code: LOST, reason: "" });
  }

  end(code) {
    this.#socket?.close(code);
  }

  /** The line is back. */
  resume() {
    if (!this.#socket) return this.lose();
    const held = this.#held.splice(0);
    if (this.#given) {
      // Another connection has taken the session over, or soon will: the server closes this one.
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
