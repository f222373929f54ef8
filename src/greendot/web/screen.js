// One person's screen: what the server says goes into its parts, what the person does goes to the server.

import { Messages } from "./messages.js";
import { randomId } from "./names.js";
import { drawPerson, People, setText } from "./people.js";
import { recall, remember } from "./store.js";
import { setServerTime } from "./times.js";
import { TypingLine, TypingSignal } from "./typing.js";
import { Stopped, Wire } from "./wire.js";

const ROOM = "lobby";
const HISTORY = 50;
const PRESENT = 300; // the most the server tells at once
const ACTIVITY_MS = 30_000;
const TOKEN_MS = 10_000;
const SECOND_MS = 1_000;
const SEEN_MS = 5_000; // how often “last seen” is brought up to date

const $ = (id) => document.getElementById(id);

export class Screen {
  #me;
  #wire;
  #people;
  #typing;
  #signal;
  #messages;
  #hasHistory = false;
  #count = 0; // people in the room
  #wanted = null; // the status being set
  #activeAt = -Infinity;
  #redraw = null; // the frame in which the list will be drawn
  #timers = [];
  #ending = new AbortController();

  constructor(me, device) {
    this.#me = me;
    this.#wire = new Wire({
      url: new URL("v1/connect", location.href.replace(/^http/, "ws")),
      token: () => this.#token(),
      device,
      onState: (state) => this.#showState(state),
      onEvent: (type, data) => this.#heard(type, data),
    });
    this.#people = new People($("people"), me, (id) => this.#forgotten(id));
    const nameOf = (id) => this.#people.nameOf(id);
    this.#typing = new TypingLine($("typing"), nameOf);
    this.#signal = new TypingSignal((type) => this.#wire.tell(type, { room: ROOM }));
    this.#messages = new Messages({
      list: $("messages"),
      scroll: $("scroll"),
      newer: $("newer"),
      me,
      nameOf,
      ending: this.#ending.signal,
    });
  }

  start() {
    for (const [id, name] of Object.entries(recall("people") ?? {})) this.#people.meet(id, name);
    this.#wire.watch([this.#me.id, ...this.#people.ids]);
    this.#wire.join(ROOM);
    this.#wire.start();
    this.#draw();
    this.#timers.push(setInterval(() => this.#showCountdown(this.#wire.state), SECOND_MS));
    this.#timers.push(setInterval(() => this.#draw(), SEEN_MS));
  }

  close() {
    this.#wire.close();
    this.#ending.abort();
    cancelAnimationFrame(this.#redraw);
    for (const timer of this.#timers) clearInterval(timer);
    this.#typing.clear();
    this.#signal.sent();
    // Whoever one was before is a person like any other to whom one is next.
    remember("people", { ...this.#people.names, [this.#me.id]: this.#me.name });
    for (const id of ["people", "messages"]) $(id).replaceChildren();
    $("text").value = "";
    $("notice").hidden = true;
  }

  // What the person does

  connect() {
    this.#wire.start();
  }

  wake() {
    this.#wire.wake();
    this.#draw();
  }

  active() {
    const now = performance.now();
    if (now - this.#activeAt >= ACTIVITY_MS && this.#wire.tell("activity")) this.#activeAt = now;
  }

  edited(text) {
    this.#signal.edited(text);
  }

  watch(id, name) {
    this.#meet(id, name);
    this.#draw();
    document.querySelector(`[data-user="${id}"]`)?.scrollIntoView({ block: "nearest" });
  }

  async say(text) {
    this.#signal.sent();
    const draft = this.#messages.draft(text, this.#wire.connected ? "sending…" : "will be sent once connected");
    this.#drawSilence();
    try {
      await this.#wire.deliver("room.send", { room: ROOM, body: { text }, key: randomId() });
      draft.sent();
    } catch (error) {
      draft.failed(error.message);
    }
  }

  async setStatus(status) {
    this.#wanted = status;
    try {
      const { presence } = await this.#wire.ask("status.set", { status });
      this.#people.heard(presence, true);
    } catch {
      // The choice goes back to what holds.
    }
    if (this.#wanted === status) this.#wanted = null;
    this.#draw();
  }

  // What the server says

  #heard(type, data) {
    if (data.room !== undefined && data.room !== ROOM) return;
    switch (type) {
      case "welcome":
        setServerTime(data.server_time);
        if (ROOM in data.rooms) {
          if (!this.#hasHistory) this.#fetchHistory();
          this.#lookAround();
        }
        break;
      case "presence":
      case "presence.changed":
        this.#people.heard(data, type === "presence");
        break;
      case "room.joined":
        if (!this.#hasHistory) this.#fetchHistory();
        this.#lookAround();
        break;
      case "room.truncated":
        this.#messages.clear();
        this.#fetchHistory();
        break;
      case "room.message":
        this.#meet(data.user, data.name);
        this.#typing.stopped(data);
        this.#show([data]);
        break;
      case "room.changed":
        if (data.removed) setText($("present"), "you are no longer in this room");
        break;
      case "room.entered":
        this.#meet(data.user);
        if (this.#people.entered(data.user)) this.#showCount(this.#count + 1);
        break;
      case "room.left":
        if (this.#people.left(data.user)) this.#showCount(this.#count - 1);
        break;
      case "room.count":
        this.#showCount(data.count);
        break;
      case "typing.started":
        this.#meet(data.user, data.name);
        this.#typing.started(data);
        break;
      case "typing.stopped":
        this.#typing.stopped(data);
        break;
      case "typing.count":
        this.#typing.counted(data);
        break;
    }
    this.#drawSoon();
  }

  async #token() {
    const query = new URLSearchParams({ user: this.#me.id, name: this.#me.name });
    const answer = await fetch(`dev/token?${query}`, { signal: AbortSignal.timeout(TOKEN_MS) });
    if (answer.ok) return (await answer.json()).token;
    if (answer.status >= 500 || answer.status === 429) throw new Error(`the server answered ${answer.status}`);
    const problem = await answer.json().catch(() => ({}));
    throw new Stopped(problem.detail || problem.title || `no token for ${this.#me.id} (${answer.status})`);
  }

  async #fetchHistory() {
    this.#hasHistory = false;
    $("scroll").ariaBusy = "true"; // what was said before is not read out
    try {
      const { messages } = await this.#wire.ask("room.history", { room: ROOM, limit: HISTORY });
      this.#hasHistory = true;
      for (const { user, name } of messages) this.#meet(user, name);
      this.#show(messages);
    } catch {
      // Asked for again after the next welcome.
    }
    $("scroll").ariaBusy = "false";
    this.#drawSilence();
  }

  /** Who is in the room now; from here on the room tells who enters and leaves. */
  async #lookAround() {
    try {
      const { users, count } = await this.#wire.ask("room.present", { room: ROOM, limit: PRESENT });
      this.#people.setPresent(users);
      for (const user of users) this.#meet(user);
      this.#showCount(count);
      this.#drawSoon();
    } catch {
      // Asked for again after the next welcome.
    }
  }

  #showCount(count) {
    this.#count = count;
    setText($("present"), count <= 1 ? "only you are here" : `${count} people here`);
  }

  #meet(id, name = null) {
    if (this.#people.meet(id, name)) this.#wire.watch([id]);
  }

  #forgotten(id) {
    this.#wire.unwatch(id);
    this.#draw();
  }

  // What is seen

  #show(messages) {
    this.#messages.add(messages);
    this.#drawSilence();
  }

  #drawSilence() {
    $("silence").hidden = !(this.#hasHistory && this.#messages.isEmpty);
  }

  /** Many changes in one go are one drawing. */
  #drawSoon() {
    cancelAnimationFrame(this.#redraw);
    this.#redraw = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    if (this.#ending.signal.aborted) return; // an answer that came after the person had left
    const known = this.#people.draw();
    $("nobody").hidden = known > 0;
    $("people").hidden = known === 0;
    const isLive = this.#wire.connected;
    $("people").classList.toggle("stale", !isLive);
    setText($("people-note"), known === 0 ? "" : isLive ? `${this.#people.here} of ${known} online` : "as last known");
    this.#drawMe(isLive);
    remember("people", this.#people.names);
  }

  #drawMe(isLive) {
    const own = this.#people.own;
    const isInvisible = own?.status === "invisible";
    const state = !isLive || !own ? "offline" : isInvisible ? "invisible" : own.state;
    const words = !isLive ? "not connected" : !own ? "…" : isInvisible ? "invisible: others see you offline" : own.state;
    drawPerson($("me"), { ...this.#me, state, words });
    $("status").disabled = !isLive;
    const choice = $("status").querySelector(`[value="${this.#wanted ?? own?.status ?? "auto"}"]`);
    if (choice) choice.checked = true;
  }

  #showState(state) {
    const words = {
      connecting: state.failures ? "Reconnecting…" : "Connecting…",
      connected: "Connected",
      waiting: "Reconnecting",
      stopped: "Stopped",
    };
    setText($("link-word"), words[state.name]);
    $("link-dot").dataset.state = { connected: "online", stopped: "busy" }[state.name] ?? "idle";
    this.#showCountdown(state);
    const isStopped = state.name === "stopped";
    if (isStopped) setText($("notice-text"), `Stopped: ${state.reason}`);
    else if (state.failures > 1) setText($("notice-text"), "The server is out of reach. What you write is sent later.");
    $("notice").hidden = !isStopped && (state.name === "connected" || state.failures < 2);
    setText($("retry"), isStopped ? "Connect again" : "Try now");
    if (state.name !== "connected") setText($("present"), "");
    this.#drawSoon();
  }

  #showCountdown({ name, until }) {
    const seconds = Math.max(0, Math.ceil((until - Date.now()) / SECOND_MS));
    setText($("link-wait"), name === "waiting" ? ` in ${seconds} s` : "");
  }
}
