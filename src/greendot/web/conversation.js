// One room on one device: messages, typing users, occupants, and the text field.

import { newKey, typingText } from "./greendot.js";
import { copyOf, setText } from "./dom.js";
import { MessageList } from "./messages.js";
import { Receipts } from "./receipts.js";
import { clock } from "./times.js";

const PAGE = 50;
const PRESENT = 300; // most occupants in one reply of the server

const BANNED = "The app has banned you from this room.";
const GONE = "The app has deleted this room.";
const REMOVED = { banned: BANNED, "banned by the app": BANNED, no_such_room: GONE, "room deleted": GONE };

export class Conversation {
  name;
  room;
  element;
  present = new Set(); // ids of the occupants; empty in large rooms
  isRemoved = false;
  #seat;
  #list;
  #receipts;
  #typing;
  #earlier;
  #silence;
  #rights; // why the user may not write, and for how long
  #form;
  #hasHistory = false;
  #isShown = false;
  onChange = () => {}; // unread, typing or occupancy changed

  constructor(seat, name) {
    this.#seat = seat;
    this.name = name;
    this.room = seat.client.room(name);
    this.element = copyOf("talk");
    this.element.hidden = true;
    const part = (selector) => this.element.querySelector(selector);
    this.#typing = part(".typing");
    this.#earlier = part(".earlier");
    this.#silence = part(".silence");
    this.#rights = part(".rights");
    this.#form = part("form.say");
    part(".scroll").setAttribute("aria-label", `Messages in ${name}`);
    this.#list = new MessageList({
      root: this.element,
      me: seat.me,
      nameOf: seat.nameOf,
      does: {
        edit: (seq, text) => this.#write(() => this.room.edit(seq, { text })),
        delete: (seq) => this.#write(() => this.room.delete(seq)),
        react: (seq, reaction, on) => this.#write(() => this.room.react(seq, reaction, { on })),
      },
    });
    this.#receipts = new Receipts(this.room, () => this.#drawReceipts());
    this.#list.onEnd = () => this.seen();
    this.#earlier.addEventListener("click", () => this.#fetchEarlier());
    this.#listen();
    this.#setUpField(this.#form, part("textarea"));
    this.#drawRights();
  }

  get unread() {
    return this.room.unread;
  }

  start() {
    this.room.join({ history: PAGE }).catch(() => {}); // reported as `removed`, or by the state of the closed client
  }

  show(isShown) {
    if (this.#isShown === isShown) return;
    this.#isShown = isShown;
    this.element.hidden = !isShown;
    if (!isShown) return;
    this.#list.setRead(this.unread ? this.room.head - this.unread : null);
    this.#list.toEnd();
    this.seen();
  }

  close() {
    this.#list.close();
  }

  /** Show changed names of users. */
  drawNames() {
    this.#list.drawSeen();
  }

  focus() {
    this.element.querySelector("textarea").focus({ preventScroll: true });
  }

  /** Mark all messages as read if the last one is visible. */
  seen() {
    if (!this.#isShown || !this.#seat.isLookedAt || !this.unread || !this.#list.isAtEnd) return;
    this.room.read().catch(() => {}); // closed: the next connection starts from the server's read marker
  }

  #listen() {
    const { room } = this;
    const changed = () => this.onChange();
    room.on("message", (message) => this.#heard(message));
    room.on("unread", changed);
    room.on("count", changed);
    room.on("typing", ({ typers, count }) => {
      for (const { user, name } of typers) this.#seat.meet(user, name);
      const names = typers.map(({ user, name }) => name ?? this.#seat.nameOf(user));
      setText(this.#typing, typingText(names, count));
      changed();
    });
    room.on("entered", ({ user }) => {
      this.present.add(user);
      this.#seat.meet(user);
      changed();
    });
    room.on("left", ({ user }) => {
      this.present.delete(user);
      changed();
    });
    for (const type of ["archived", "muted", "slow_mode"]) room.on(type, () => this.#drawRights());
    room.on("joined", ({ messages }) => {
      this.isRemoved = false;
      this.#drawRights();
      if (!this.#hasHistory) this.#fetch(messages);
      this.#lookAround();
    });
    room.on("resync", () => {
      this.#list.clear();
      this.#fetch();
    });
    room.on("removed", (why) => {
      this.isRemoved = true;
      this.#drawRights(why);
      this.#hasHistory = false; // messages of the meantime are not delivered
      changed();
    });
  }

  #drawReceipts() {
    const { read } = this.#receipts;
    for (const user of read.keys()) this.#seat.meet(user); // for the name
    this.#list.setReceipts(read);
  }

  #heard(message) {
    this.#seat.meet(message.user, message.name);
    this.#list.add([message]);
    this.#drawSilence();
    this.seen();
  }

  /** Show the newest page, which the join has brought unless it is empty. */
  async #fetch(brought = []) {
    this.#hasHistory = true;
    const scroll = this.element.querySelector(".scroll");
    scroll.ariaBusy = "true"; // screen readers must not announce old messages
    try {
      const unread = this.unread;
      const messages = brought.length ? brought : await this.room.history({ limit: PAGE });
      for (const { user, name } of messages) this.#seat.meet(user, name);
      this.#list.add(messages);
      if (this.#isShown && unread) this.#list.setRead(this.room.head - unread);
      this.#list.toEnd();
      this.#earlier.hidden = messages.length < PAGE;
      this.seen();
    } catch {
      this.#hasHistory = false; // fetched again when the room is joined again
    }
    scroll.ariaBusy = "false";
    this.#drawSilence();
  }

  async #fetchEarlier() {
    this.#earlier.disabled = true;
    try {
      const messages = await this.room.history({ before: this.#list.oldest, limit: PAGE });
      this.#list.addEarlier(messages);
      this.#earlier.hidden = messages.length < PAGE;
    } catch {
      // The button stays, to try again.
    }
    this.#earlier.disabled = false;
  }

  /** Read the occupants. Later changes arrive as events. */
  async #lookAround() {
    try {
      const { users } = await this.room.present({ limit: PRESENT });
      this.present = new Set(users);
      for (const user of users) this.#seat.meet(user);
      this.onChange();
    } catch {
      // Read again when the room is joined again.
    }
  }

  /** Show whether the user may write. `why` is the reason of a removal: then a message is an attempt to return. */
  #drawRights(why) {
    const { archived, mutedUntil, slowModeS } = this.room;
    const muted = mutedUntil === Infinity ? "The app has muted you." : mutedUntil && `The app has muted you until ${clock(mutedUntil)}.`;
    const reading = archived ? "This room is archived. You can only read it." : muted && `${muted} You can only read.`;
    const words = this.isRemoved ? (REMOVED[why] ?? "You are no longer in this room.") : reading;
    setText(this.#rights, words || "");
    this.#rights.hidden = !words;
    this.#form.hidden = Boolean(words) && !this.isRemoved;
    const slow = slowModeS ? ` (slow mode: one message in ${slowModeS} s)` : "";
    this.#form.querySelector("textarea").placeholder = `Write to ${this.name}…${slow}`;
  }

  #setUpField(form, field) {
    field.setAttribute("aria-label", `Message to ${this.name}`);
    field.addEventListener("input", () => this.room.typing(field.value.trim() !== ""));
    field.addEventListener("keydown", (event) => {
      const last = this.#list.lastOwn;
      if (event.key === "ArrowUp" && !field.value && last) {
        event.preventDefault();
        this.#list.edit(last.seq);
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!text) return;
      field.value = "";
      this.#say(text);
    });
  }

  async #say(text) {
    const key = newKey();
    const isOnline = this.#seat.client.state === "online";
    const words = isOnline ? "sending…" : "will be sent when connected";
    const draft = this.#list.draft(key, text, words, () => this.#say(text));
    this.#drawSilence();
    try {
      await this.room.send({ text }, { key });
      this.#seat.sent(isOnline);
      draft.sent();
      if (this.isRemoved) this.start(); // a user who may send may also join again
    } catch (error) {
      draft.failed(error.message);
    }
  }

  /** Change a message; resolve to false if that failed. */
  async #write(call) {
    try {
      await call();
      return true;
    } catch (error) {
      this.#seat.complain(`The message could not be changed: ${error.message}`);
      return false;
    }
  }

  #drawSilence() {
    this.#silence.hidden = !(this.#hasHistory && this.#list.isEmpty);
  }
}
