// Runner of the JavaScript client: commands as JSON lines on standard input, events as JSON lines on standard output.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const MODULE = new URL(process.env.GREENDOT_JS ?? "../../../src/greendot/web/greendot.js", import.meta.url);
const KEYSTROKE_MS = 30;
const STATES = { online: "online", waiting: "waiting", offline: "waiting", closed: "closed" };

const { Greendot } = await import(MODULE);
// Node 20 has no WebSocket class.
const webSocket = globalThis.WebSocket ?? createRequire(import.meta.url)("ws").WebSocket;
const realNow = Date.now;
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const clients = new Map();
const requests = new Map(); // for tokens, by number
let last = 0;

/** Request a token from the driver, which is the backend of the app. */
function token(client) {
  return new Promise((resolve, reject) => {
    requests.set(++last, { resolve, reject });
    write({ event: "token", client, request: last });
  });
}

function give({ request, token, error }) {
  const { resolve, reject } = requests.get(request) ?? {};
  requests.delete(request);
  if (error === undefined) resolve?.(token);
  else reject?.(new Error(error));
}

function open({ client: name, url, device, backoff }) {
  const client = new Greendot({
    url,
    device,
    webSocket,
    fallback: false,
    getToken: () => token(name),
    backoff: { baseMs: backoff.base_ms, capMs: backoff.cap_ms },
  });
  const say = (event, fields) => write({ event, client: name, ...fields });
  client.on("state", ({ state, reason }) => {
    const { code = null, retryInMs = null, text = "", detail = "" } = reason ?? {};
    if (STATES[state]) say("state", { state: STATES[state], code, retry_in_ms: retryInMs, text: `${text} ${detail}` });
  });
  client.on("message", ({ room, seq, user, body }) => say("message", { room, seq, user, body }));
  client.on("notification", ({ seq, kind, body }) => say("notification", { seq, kind, body }));
  client.on("typing", ({ room, typers }) => say("typing", { room, users: typers.map(({ user }) => user) }));
  client.on("error", ({ code }) => say("error", { code }));
  client.inbox.on("resync", ({ after, head }) => say("gap", { stream: "inbox", after, head }));
  client.connect();
  return { client, rooms: new Set(), say };
}

/** Return the room, with its listeners. */
function roomOf({ client: name, room: named }) {
  const { client, rooms, say } = clients.get(name);
  const room = client.room(named);
  if (!rooms.has(named)) {
    rooms.add(named);
    room.on("resync", ({ after, head }) => say("gap", { stream: `room:${named}`, after, head }));
    room.on("removed", () => say("removed", { room: named }));
  }
  return room;
}

const of = ({ client }) => clients.get(client).client;

const commands = {
  connect(command) {
    clients.get(command.client)?.client.close({ bye: false });
    clients.set(command.client, open(command));
  },
  close: (command) => of(command).close({ bye: command.bye ?? true }),
  async join(command) {
    const { after, history } = command;
    const { messages } = await roomOf(command).join({ after, history });
    return { messages: messages.map(({ body }) => body) };
  },
  leave: (command) => roomOf(command).leave(),
  async send(command) {
    return { seq: (await roomOf(command).send(command.body)).seq };
  },
  /** Report keystrokes for a time, and a last one after it. */
  async type(command) {
    const room = roomOf(command);
    const began = performance.now();
    while (performance.now() - began < (command.for_ms ?? 0)) {
      room.typing();
      await sleep(KEYSTROKE_MS);
    }
    room.typing();
    return { ms: performance.now() - began };
  },
  stop_typing: (command) => roomOf(command).typing(false),
  async watch(command) {
    const { client, say } = clients.get(command.client);
    const [{ state }] = await client.presence.get([command.user]);
    let known = state;
    client.presence.watch(command.user, (person) => {
      if (person.state !== known) say("presence", { user: person.user, state: (known = person.state) });
    });
    return { state };
  },
  now: (command) => ({ ms: of(command).now() }),
  /** Return after all events that the server has sent are printed. */
  async sync(command) {
    if (of(command).state === "online") await of(command).request("room.list").catch(() => {});
  },
  /** Set the system clock of this process wrong. */
  clock: ({ shift_ms }) => void (Date.now = () => realNow() + shift_ms),
  /** End a client and forget it. */
  end({ client }) {
    clients.get(client).client.close();
    clients.delete(client);
  },
};

async function perform(command) {
  try {
    write({ id: command.id, ok: (await commands[command.do](command)) ?? {} });
  } catch (error) {
    write({ id: command.id, error: { code: error.code ?? error.name, message: String(error.message) } });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "token") give(command);
  else void perform(command);
}
for (const client of clients.keys()) commands.end({ client });
process.exit(0);
