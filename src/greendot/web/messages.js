// Messages of a room: each once and in order, with a rule for each day, and unsent messages at the end.

import { showMessages } from "./greendot.js";
import { button, iconButton, make, setText } from "./dom.js";
import { linked } from "./links.js";
import { avatarOf } from "./names.js";
import { makeOffers, makeReactions } from "./reactions.js";
import { lastSeen } from "./receipts.js";
import { clock, day, exact, hour, isSameDay } from "./times.js";

const MOST = 400; // messages kept on the page
const TOGETHER_MS = 5 * 60_000; // messages of one user within this time share a heading
const NEAR_PX = 60; // a smaller distance counts as the end of the list
const MOST_NAMES = 3; // readers shown by name; more are counted
const UNDO_MS = 8_000; // time to undo a deletion before the server deletes the message: the server cannot undo it

export class MessageList {
  #list;
  #scroll;
  #newer;
  #me;
  #nameOf;
  #does; // edit(seq, text), delete(seq), react(seq, reaction, on); `delete` resolves to false if it failed
  #shown = [];
  #rows = new Map(); // seq → {row, version, reacted}
  #drafts = new Map(); // key → row of an unsent message; always at the end
  #removed = new Map(); // seq → timer of the deletion, until the server has deleted the message
  #isPinned = true; // the end of the list is visible, and stays visible if the size of the list changes
  #read = new Map(); // user → last message that the user has read
  #seen = make("li", "seen"); // line below the last message that others have read
  #newFrom = null; // the first message that was unread when the room was opened
  onEnd = () => {}; // the user has scrolled to the end of the list

  constructor({ root, me, nameOf, does }) {
    this.#list = root.querySelector(".messages");
    this.#scroll = root.querySelector(".scroll");
    this.#newer = root.querySelector(".newer");
    this.#me = me;
    this.#nameOf = nameOf;
    this.#does = does;
    this.#seen.ariaLive = "off"; // screen readers announce messages only
    this.#scroll.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#newer.addEventListener("click", () => this.toEnd());
    const resized = new ResizeObserver(() => this.#isPinned && this.toEnd());
    for (const part of [this.#scroll, this.#list]) resized.observe(part); // a keyboard opens, or lines wrap
  }

  get isEmpty() {
    return this.#shown.length === 0 && this.#drafts.size === 0;
  }

  get oldest() {
    return this.#shown[0]?.seq ?? null;
  }

  get isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  /** Return the user's last message that can be changed. */
  get lastOwn() {
    const isOwn = ({ seq, user, deleted }) => user === this.#me.id && !deleted && !this.#removed.has(seq);
    return this.#shown.findLast(isOwn) ?? null;
  }

  /** Show records. They may come in any order and repeatedly. */
  add(records) {
    const stay = this.isAtEnd;
    for (const { key } of records) if (key) this.#dropDraft(key); // an own message that arrived before the reply to its send
    const before = this.#shown;
    this.#shown = showMessages(before, records, MOST, this.#me.id);
    if (this.#shown === before) return;
    const last = before.at(-1)?.seq ?? 0;
    this.#draw();
    const news = this.#shown.filter(({ seq }) => seq > last);
    if (stay || news.some(({ user }) => user === this.#me.id)) this.toEnd();
    else if (news.length && last > 0) this.#newer.hidden = false;
  }

  /** Add older messages above. The visible messages keep their place. */
  addEarlier(records) {
    const fromEnd = this.#scroll.scrollHeight - this.#scroll.scrollTop;
    this.#shown = showMessages(this.#shown, records, Infinity, this.#me.id);
    this.#draw();
    this.#scroll.scrollTop = this.#scroll.scrollHeight - fromEnd;
  }

  clear() {
    this.#shown = [];
    this.#newer.hidden = true;
    this.#draw();
  }

  /** Show a line above the first message of another user with a greater number; null for no line. */
  setRead(seq) {
    const isNews = (message) => seq !== null && message.seq > seq && message.user !== this.#me.id;
    this.#newFrom = this.#shown.find(isNews)?.seq ?? null;
    this.#draw();
  }

  /** Show who has read the last message that others have read. `read` has the number of the last message by user. */
  setReceipts(read) {
    this.#read = read;
    this.#draw();
  }

  /** Show changed names of readers. Return the last message that others have read. */
  drawSeen() {
    const seen = lastSeen(this.#shown, this.#read, this.#me.id);
    if (seen) setText(this.#seen, seenText(seen.users.map((user) => this.#nameOf(user))));
    return seen;
  }

  /** Show an unsent message. The caller must call `sent` or `failed` of the result. */
  draft(key, text, words, again) {
    const note = make("p", "note", words);
    const row = make("li", "message mine draft", make("p", "text", text), note);
    this.#drafts.set(key, row);
    this.#list.append(row);
    this.toEnd();
    const failed = (reason) => {
      if (!this.#drafts.has(key)) return;
      row.classList.add("failed");
      const drop = (call) => () => {
        this.#dropDraft(key);
        call();
      };
      note.replaceChildren(
        `not sent: ${reason} `,
        button("link", "Try again", drop(again)),
        button("link", "Discard", drop(() => {})),
      );
    };
    return { sent: () => this.#dropDraft(key), failed, say: (said) => this.#drafts.has(key) && setText(note, said) };
  }

  toEnd() {
    this.#isPinned = true;
    this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#newer.hidden = true;
  }

  /** Open the editor in place of a message. */
  edit(seq) {
    const held = this.#rows.get(seq);
    const message = this.#shown.find((one) => one.seq === seq);
    if (!held || !message || held.row.querySelector("form")) return;
    held.row.querySelector(".text").replaceWith(
      makeEditor(textOf(message.body), (text) => {
        this.#redraw(seq); // with or without the change
        if (text !== null) this.#does.edit(seq, text);
      }),
    );
    held.row.querySelector("textarea").focus();
  }

  /** Delete messages whose deletion waits for an undo, because the page is left. */
  close() {
    for (const seq of this.#removed.keys()) this.#delete(seq);
  }

  #scrolled() {
    this.#isPinned = this.isAtEnd;
    if (!this.#isPinned) return;
    this.#newer.hidden = true;
    this.onEnd();
  }

  /** Show a message as deleted, with a button to undo it. */
  #remove(seq) {
    this.#removed.set(seq, setTimeout(() => this.#delete(seq), UNDO_MS));
    this.#redraw(seq);
    this.#rows.get(seq)?.row.querySelector("button").focus({ preventScroll: true });
  }

  #undo(seq) {
    clearTimeout(this.#removed.get(seq));
    this.#removed.delete(seq);
    this.#redraw(seq);
    this.#rows.get(seq)?.row.querySelector("button").focus({ preventScroll: true });
  }

  async #delete(seq) {
    if (!this.#removed.get(seq)) return;
    clearTimeout(this.#removed.get(seq));
    this.#removed.set(seq, null); // too late to undo
    this.#redraw(seq);
    if (await this.#does.delete(seq)) return; // the record of the deletion draws the row
    this.#removed.delete(seq);
    this.#redraw(seq);
  }

  #redraw(seq) {
    const held = this.#rows.get(seq);
    if (!held) return; // too old to be shown
    const hadFocus = held.row.contains(document.activeElement);
    held.version = -1;
    this.#draw();
    if (hadFocus && document.activeElement === document.body) this.#scroll.focus({ preventScroll: true });
  }

  #dropDraft(key) {
    this.#drafts.get(key)?.remove();
    this.#drafts.delete(key);
  }

  /** Draw the list. The row of an unchanged message is kept, and with it focus and selection. */
  #draw() {
    const wanted = [];
    let before = null;
    const seen = this.drawSeen();
    for (const message of this.#shown) {
      const newDay = !before || !isSameDay(before.at, message.at);
      if (newDay) wanted.push(make("li", "rule day", make("span", "", day(message.at))));
      if (message.seq === this.#newFrom) wanted.push(make("li", "rule new", make("span", "", "New")));
      const row = this.#row(message);
      const near = before && message.at - before.at < TOGETHER_MS && before.user === message.user;
      row.classList.toggle("more", Boolean(near && !newDay && message.seq !== this.#newFrom));
      wanted.push(row);
      if (message.seq === seen?.seq) wanted.push(this.#seen);
      before = message;
    }
    place(this.#list, [...wanted, ...this.#drafts.values()]);
    const shown = new Set(this.#shown.map(({ seq }) => seq));
    for (const seq of this.#rows.keys()) if (!shown.has(seq)) this.#rows.delete(seq);
  }

  #row(message) {
    const held = this.#rows.get(message.seq);
    if (held?.version === message.changed) return this.#react(held, message);
    const row = this.#makeRow(message);
    if (held) held.row.replaceWith(row);
    this.#rows.set(message.seq, { row, version: message.changed, reacted: message.reacted });
    return row;
  }

  /** Draw the reactions of an unchanged message again. An open editor stays, and the focus on a reaction. */
  #react(held, message) {
    if (held.reacted === message.reacted) return held.row;
    held.reacted = message.reacted;
    const old = held.row.querySelector(".reactions");
    const at = [...old.children].indexOf(document.activeElement);
    const chips = makeReactions(message, this.#does.react);
    old.replaceWith(chips);
    if (at >= 0) (chips.children[at] ?? this.#scroll).focus({ preventScroll: true });
    return held.row;
  }

  #makeRow(message) {
    const { seq, user, name, info, body, at, edited, deleted: isGone } = message;
    const isMine = user === this.#me.id;
    if (isGone) this.#removed.delete(seq);
    const deleted = isGone || this.#removed.has(seq);
    const author = isMine ? "You" : name || this.#nameOf(user) || "unknown user";
    const time = make("time", "", hour(at));
    time.dateTime = new Date(at).toISOString();
    time.title = exact(at);
    const { hue, letters } = avatarOf(user, isMine ? this.#me.name : author, info);
    const avatar = make("span", "avatar", make("span", "initials", letters));
    avatar.setAttribute("aria-hidden", "true");
    const head = make("p", "head", make("bdi", "name", author), " ", time);
    const text = make("p", "text", ...(deleted ? ["message deleted"] : linked(textOf(body))));
    text.dir = "auto";
    if (this.#removed.get(seq)) text.append(this.#makeUndo(seq, at));
    if (edited && !deleted) text.append(" ", make("span", "edited", "(edited)"));
    const chips = makeReactions({ ...message, deleted }, this.#does.react);
    const row = make("li", `message${isMine ? " mine" : ""}${deleted ? " deleted" : ""}`, avatar, head, text, chips);
    if (!deleted) {
      row.append(this.#makeTools(seq, `${isMine ? "your message" : `the message of ${author}`} of ${clock(at)}`, isMine));
      text.addEventListener("click", ({ target }) => target.closest("a") || this.#pick(row)); // for devices without hover
    }
    row.style.setProperty("--hue", hue);
    row.dataset.seq = seq;
    return row;
  }

  #pick(row) {
    for (const other of this.#list.querySelectorAll(".picked")) if (other !== row) other.classList.remove("picked");
    row.classList.toggle("picked");
  }

  #makeUndo(seq, at) {
    const undo = button("link", "Undo", () => this.#undo(seq));
    undo.setAttribute("aria-label", `Undo the deletion of your message of ${clock(at)}`);
    return undo;
  }

  #makeTools(seq, which, isMine) {
    const own = [
      iconButton("edit", `Edit ${which}`, () => this.edit(seq)),
      iconButton("bin", `Delete ${which}`, () => this.#remove(seq)),
    ];
    return make("div", "tools", ...makeOffers(seq, which, this.#does.react), ...(isMine ? own : []));
  }
}

/** Return the text for readers: “Seen by Ann, Bob”, or their number if there are many. */
function seenText(names) {
  return `Seen by ${names.length > MOST_NAMES ? names.length : names.sort((a, b) => a.localeCompare(b)).join(", ")}`;
}

/** Set the children of a list in order. Children that are in their place are not touched. */
function place(list, wanted) {
  const kept = new Set(wanted);
  for (const child of [...list.children]) if (!kept.has(child)) child.remove();
  wanted.forEach((child, at) => list.children[at] !== child && list.insertBefore(child, list.children[at] ?? null));
}

/** Create an editor. It calls `done` with the new text, or null if there is no change. */
function makeEditor(text, done) {
  const field = make("textarea", "field");
  field.value = text;
  field.maxLength = 4000;
  field.setAttribute("aria-label", "New text of the message");
  const save = make("button", "primary small", "Save");
  const form = make("form", "editor", field, make("p", "line", save, button("small", "Cancel", () => done(null))));
  const finish = () => done(field.value.trim() && field.value.trim() !== text ? field.value.trim() : null);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    finish();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") done(null);
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      finish();
    }
  });
  return form;
}

export function textOf(body) {
  return typeof body?.text === "string" ? body.text : "(a message this page cannot show)";
}
