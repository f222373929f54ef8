// Rooms of one device: the list, the open room, and unread counts.

import { make, onceAFrame, setBadge, setText } from "./dom.js";
import { Conversation } from "./conversation.js";
import { recall, remember } from "./store.js";

const FIRST = "lobby";
const MOST = 20; // rooms joined

export class Rooms {
  current = null;
  #seat;
  #list;
  #stage;
  #key; // storage key of the open room
  #talks = new Map(); // name → {talk, item}
  #draw = onceAFrame(() => this.#drawAll());
  onChange = () => {}; // the list was drawn, or another room was opened
  onChosen = () => {}; // the user chose a room

  constructor(seat, list, stage, key) {
    this.#seat = seat;
    this.#list = list;
    this.#stage = stage;
    this.#key = key;
  }

  get unread() {
    return [...this.#talks.values()].reduce((sum, { talk }) => sum + talk.unread, 0);
  }

  /** Read the list of rooms and join new ones. */
  async refresh() {
    this.#add(recall(this.#key) ?? FIRST);
    const rooms = await this.#seat.client.rooms();
    for (const { room } of rooms.slice(0, MOST)) this.#add(room);
  }

  open(name) {
    this.#add(name);
    this.current = this.#talks.get(name).talk;
    remember(this.#key, name);
    for (const { talk } of this.#talks.values()) talk.show(talk === this.current);
    this.#drawAll();
  }

  /** Show changed names of users. */
  drawNames() {
    for (const { talk } of this.#talks.values()) talk.drawNames();
  }

  close() {
    for (const { talk } of this.#talks.values()) talk.close();
  }

  #add(name) {
    if (this.#talks.has(name)) return;
    const talk = new Conversation(this.#seat, name);
    talk.onChange = this.#draw;
    const item = makeItem(name, () => {
      this.open(name);
      this.onChosen();
    });
    this.#talks.set(name, { talk, item });
    this.#stage.append(talk.element);
    const after = [...this.#list.children].find((other) => compare(other.dataset.room, name) > 0);
    this.#list.insertBefore(item, after ?? null);
    talk.start();
    if (!this.current) this.open(name);
  }

  #drawAll() {
    for (const { talk, item } of this.#talks.values()) {
      const isOpen = talk === this.current;
      const press = item.firstChild;
      if (isOpen) press.setAttribute("aria-current", "true");
      else press.removeAttribute("aria-current");
      item.classList.toggle("unread", talk.unread > 0);
      setBadge(item.querySelector(".badge"), talk.unread, "unread");
      const { typers, count } = talk.room.typers;
      const isTyping = !isOpen && Math.max(typers.length, count) > 0;
      item.classList.toggle("typed", isTyping);
      setText(item.querySelector(".unseen"), isTyping ? "a user is typing" : "");
    }
    this.onChange();
  }
}

/** Sort the lobby first, then by name. */
function compare(a, b) {
  return (b === FIRST) - (a === FIRST) || a.localeCompare(b);
}

function makeItem(name, onClick) {
  const badge = make("span", "badge");
  badge.hidden = true;
  const press = make("button", "", make("span", "hash", "#"), make("bdi", "name", name), make("span", "pulse"));
  press.append(make("span", "unseen"), badge);
  press.type = "button";
  press.addEventListener("click", onClick);
  for (const quiet of [".hash", ".pulse"]) press.querySelector(quiet).setAttribute("aria-hidden", "true");
  const item = make("li", "", press);
  item.dataset.room = name;
  return item;
}
