// One device of a user: a client, its rooms, the state of its connection, and simulated outages.

import { Greendot } from "./greendot.js";
import { disclose, setText } from "./dom.js";
import { ConnectionView } from "./connection.js";
import { Plug } from "./plug.js";
import { Rooms } from "./rooms.js";
import { afterReturn, whileAway } from "./story.js";

const SECOND_MS = 1_000;
const TOKEN_MS = 10_000;
const TOLD_MS = 12_000; // time that the text after an outage stays
const SETTLED_MS = 700; // missed messages have arrived by then
const COMPLAINT_MS = 6_000;

export class Seat {
  client;
  me;
  nameOf;
  meet;
  plug;
  rooms;
  isOtherOnline = () => false; // returns whether another device of the user is connected
  isLookedAt = true; // the user is at this device, not at another one
  #root;
  #periods;
  #connection;
  #fetched = 0; // messages of other users during the outage
  #sent = 0; // own messages that waited
  #story = null; // {how, at, backAt}
  #said = 0; // number of texts shown; a timer removes only its own text
  #timer;
  #ending = new AbortController();

  /** `root` contains the elements; `people` has `nameOf` and `meet`; `again` creates a new seat with a new token. */
  constructor({ root, list, me, device, people, periods, again }) {
    this.me = me;
    this.nameOf = (id) => people.nameOf(id);
    this.meet = (id, name) => people.meet(id, name);
    this.#root = root;
    this.#periods = periods;
    this.plug = new Plug(() => this.#breakLine());
    this.client = new Greendot({
      url: "/",
      getToken: () => token(me),
      device,
      client: { name: "greendot-demo", version: "1" },
      webSocket: this.plug.webSocket,
      fallback: false, // an event stream would pass during a simulated outage, which breaks WebSockets only
      activity: false, // two devices share this page: each reports its own activity
    });
    this.rooms = new Rooms(this, list, this.#part(".talks"), `${device.split("-")[0]}.room`);
    this.#connection = new ConnectionView(
      this.client,
      {
        dot: this.#part("[data-link=dot]"),
        word: this.#part("[data-link=word]"),
        wait: this.#part("[data-link=wait]"),
        notice: this.#part(".notice"),
        text: this.#part(".notice p"),
        press: this.#part(".notice button"),
      },
      again,
    );
    this.#connection.isQuiet = () => this.plug.state !== "in";
    this.client.on("welcome", () => this.#welcomed());
    this.client.on("state", ({ state }) => this.#became(state));
    this.client.on("message", ({ user, at }) => this.#count(user, at));
    this.#setUpPlug();
    this.#timer = setInterval(() => this.#tell(), SECOND_MS);
  }

  start() {
    this.rooms.refresh().catch(() => {}); // read again after the welcome
    this.client.connect();
  }

  close() {
    this.rooms.close();
    this.client.close();
    this.#connection.close();
    this.#ending.abort();
    clearInterval(this.#timer);
    for (const part of [".talks", ".rooms"]) this.#root.querySelector(part)?.replaceChildren();
    for (const part of [".notice", ".story"]) this.#part(part).hidden = true;
  }

  /** Count an own message that was sent. `atOnce` is false if it waited for a connection. */
  sent(atOnce) {
    if (!atOnce) this.#sent += 1;
  }

  /** Show a message for a few seconds, such as an error. */
  complain(words) {
    if (this.#ending.signal.aborted) return;
    this.#say(words, COMPLAINT_MS);
  }

  #part(selector) {
    return this.#root.querySelector(selector);
  }

  #welcomed() {
    this.rooms.refresh().catch(() => {});
    if (!this.#story) return;
    this.#story.backAt ??= Date.now();
    setTimeout(() => this.#endStory(), SETTLED_MS);
  }

  // Simulated outage

  #setUpPlug() {
    const [press, menu] = [this.#part(".pull"), this.#part(".pull-menu")];
    const { signal } = this.#ending;
    const mayOpen = () => this.plug.state === "in" || this.#plugIn();
    const panel = disclose(press, menu, { mayOpen, signal });
    for (const choice of menu.querySelectorAll("button")) {
      choice.addEventListener("click", () => (panel.close(), this.#pull(choice.value)), { signal });
    }
    this.#drawPlug();
  }

  #pull(how) {
    this.#fetched = this.#sent = 0;
    this.#story = { how, at: Date.now(), backAt: null, wasAlone: true };
    this.plug.pull(how);
    this.#drawPlug();
    this.#tell();
  }

  #plugIn() {
    this.#story.until = this.plug.push();
    this.#drawPlug();
    this.#say("Outage ended. Resuming the session…");
    if (this.client.state === "online") this.#welcomed();
    else setTimeout(() => this.client.connect()); // sockets created during the outage have ended by then
    return false;
  }

  #drawPlug() {
    const isOut = this.plug.state !== "in";
    const press = this.#part(".pull");
    press.classList.toggle("out", isOut);
    setText(press.querySelector(".word"), isOut ? "End outage" : "Simulate outage");
    press.setAttribute("aria-label", isOut ? "End outage" : "Simulate outage");
    this.#connection.draw();
  }

  /** Let the server break the connection: a page can only close it with a close frame. */
  async #breakLine() {
    const session = this.client.welcome?.session;
    return session ? (await post("dev/cut", { session })).ok : false;
  }

  // Text about the outage

  #tell() {
    if (!this.#story || this.plug.state === "in") return;
    const { how, at } = this.#story;
    const other = this.isOtherOnline();
    if (other) this.#story.wasAlone = false;
    const away = Math.round((Date.now() - at) / SECOND_MS);
    // Screen readers announce the first text only, not one every second.
    this.#say(whileAway(how, away, this.#periods, other), null, away === 0);
  }

  #count(user, at) {
    const isMissed = this.#story && user !== this.me.id && at >= this.#story.at - SECOND_MS;
    if (isMissed && at <= (this.#story.backAt ?? Infinity)) this.#fetched += 1;
  }

  #endStory() {
    if (!this.#story || this.plug.state !== "in") return;
    const { how, until, wasAlone } = this.#story;
    this.#story = null;
    const done = { other: !wasAlone, fetched: this.#fetched, sent: this.#sent };
    this.#say(afterReturn(how, Math.round(until / SECOND_MS), this.#periods, done), TOLD_MS);
    this.#connection.draw();
  }

  /** Hide an old text when the state changes. The text about an outage stays, unless the client is closed. */
  #became(state) {
    if (state === "closed") this.#story = null;
    if (state !== "online" && !this.#story) this.#hush();
  }

  #hush() {
    this.#said += 1;
    this.#part(".story").hidden = true;
  }

  #say(words, forMs = null, aloud = true) {
    const strip = this.#part(".story");
    const said = ++this.#said;
    setText(strip, words);
    if (aloud) setText(this.#part(".story-aloud"), words);
    strip.hidden = false;
    if (forMs !== null) setTimeout(() => said === this.#said && this.#hush(), forMs);
  }
}

async function token(me) {
  const query = new URLSearchParams({ user: me.id, name: me.name });
  const answer = await fetch(`dev/token?${query}`, { signal: AbortSignal.timeout(TOKEN_MS) });
  if (answer.ok) return (await answer.json()).token;
  if (answer.status >= 500 || answer.status === 429) throw new Error(`the server answered ${answer.status}`);
  return null;
}

export function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
