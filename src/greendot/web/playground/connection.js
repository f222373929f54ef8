// Connection of one session, on the bare WebSocket: the page shows and sends the frames as they are.

const NORMAL = 1000;
const OUTAGE = { "Content-Type": "application/json" };

export class Connection {
  state = "closed"; // closed, opening, open (without a welcome), online
  session = null; // id of the last session
  token = "";
  onState = () => {}; // gets a text if the connection failed or ended
  onFrame = () => {}; // gets the direction, the text, and details for the list
  sendsHello = true;
  sendsBeats = true;
  #document;
  #socket = null;
  #attempt = 0; // to ignore events of earlier attempts
  #beat = null;
  #pending = new Map(); // id of a command → its type, room and time
  #rooms = {}; // room → number of the last message, to resume
  #inbox = null;

  constructor(document) {
    this.#document = document;
  }

  get canResume() {
    return this.state === "closed" && this.session !== null;
  }

  /** Open a socket as this user. With `resumes`, continue the last session. */
  async connect(user, device, resumes = false) {
    this.disconnect();
    const attempt = ++this.#attempt;
    if (!resumes) {
      this.session = this.#inbox = null;
      this.#rooms = {};
    }
    this.#become("opening");
    try {
      this.token = await token(user);
    } catch (error) {
      if (attempt === this.#attempt) this.#become("closed", `No token for ${user || "an empty name"}: ${error.message}`);
      return;
    }
    if (attempt === this.#attempt) this.#open(attempt, device, resumes);
  }

  disconnect() {
    this.#socket?.close(NORMAL);
    if (this.state === "opening" && !this.#socket) {
      this.#attempt += 1;
      this.#become("closed", "");
    }
  }

  /** Let the server break the socket, as a broken network does. Return the reason if it could not. */
  async cut() {
    const body = JSON.stringify({ session: this.session });
    const answer = await fetch("/dev/cut", { method: "POST", headers: OUTAGE, body }).catch((error) => error);
    return answer.ok ? null : (await detail(answer));
  }

  /** Send a text frame, unchanged. Return false if there is no connection. */
  send(text) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(text);
    const frame = parsed(text);
    if (frame?.id !== undefined) this.#pending.set(frame.id, { type: frame.type, room: frame.room, at: performance.now() });
    this.onFrame("sent", text, { frame });
    return true;
  }

  /** Return the `hello` of this session. */
  hello(device, resumes) {
    const client = { name: "greendot-playground", version: this.#document.info.version };
    const resume = { session: this.session, rooms: this.#rooms, inbox: this.#inbox };
    return { type: "hello", token: this.token, device, client, ...(resumes ? { resume } : {}) };
  }

  #open(attempt, device, resumes) {
    const address = Object.values(this.#document.channels)[0].address;
    const socket = new WebSocket(`${location.protocol.replace("http", "ws")}//${location.host}${address}`);
    this.#socket = socket;
    socket.onopen = () => {
      this.#become("open");
      if (this.sendsHello) this.send(JSON.stringify(this.hello(device, resumes)));
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => {
      if (attempt !== this.#attempt) return;
      clearInterval(this.#beat);
      this.#socket = null;
      this.#pending.clear();
      this.#become("closed", this.#explain(code, reason));
    };
  }

  #receive(text) {
    const frame = parsed(text);
    const asked = frame?.type === "reply" || frame?.type === "error" ? this.#pending.get(frame.id) : undefined;
    if (asked) this.#pending.delete(frame.id);
    this.onFrame("received", text, { frame, asked, tookMs: asked && performance.now() - asked.at });
    if (frame) this.#follow(frame, asked);
  }

  /** Keep the session, and the numbers from which a resumed session continues. */
  #follow({ type, data }, asked) {
    if (type === "welcome") {
      this.session = data.session;
      this.#startBeats(data.heartbeat_s);
      for (const [room, { head }] of Object.entries(data.rooms)) this.#rooms[room] ??= head;
      this.#become("online");
    } else if (type === "reply" && asked?.type === "room.join") {
      this.#rooms[asked.room] = data.head ?? 0;
    } else if (type === "reply" && asked?.type === "room.leave") {
      delete this.#rooms[asked.room];
    } else if (type === "room.message") {
      this.#rooms[data.room] = data.seq;
    } else if (type === "room.changed" && data.removed) {
      delete this.#rooms[data.room];
    } else if (type === "notification.created") {
      this.#inbox = data.seq;
    }
  }

  #startBeats(periodS) {
    clearInterval(this.#beat);
    const send = () => this.sendsBeats && this.send('{"type":"heartbeat"}');
    this.#beat = setInterval(send, periodS * 900);
  }

  #become(state, words = "") {
    this.state = state;
    this.onState(words);
  }

  #explain(code, reason) {
    const [channel] = Object.values(this.#document.channels);
    const known = channel["x-close-codes"].find((one) => one.code === code);
    const meaning = code === 1006 ? "The socket ended without a close frame." : (known?.meaning ?? "");
    const next = code < 4000 || !known ? "" : known.come_back ? "A client reconnects." : "A client does not reconnect.";
    return [`Closed with ${code}${known ? ` (${known.name})` : ""}.`, meaning, reason && `Reason: ${reason}`, next]
      .filter(Boolean).join(" ");
  }
}

async function token(user) {
  const answer = await fetch(`/dev/token?${new URLSearchParams({ user })}`);
  if (!answer.ok) throw new Error(await detail(answer));
  return (await answer.json()).token;
}

/** Return the reason of a refusal, or of a request without an answer. */
async function detail(answer) {
  if (answer instanceof Error) return `the server does not answer (${answer.message})`;
  const problem = await answer.json().catch(() => ({}));
  return problem.detail ?? `the server answered ${answer.status}`;
}

export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
