// Second device of the same user. Read markers, messages and the status of one device appear on the other.

import { $, setBadge, setText } from "./dom.js";
import { Seat } from "./seat.js";

export class SecondDevice {
  seat = null;
  #make; // options of a seat, without its root
  onChange = () => {}; // opened, closed, connected or disconnected

  constructor(options) {
    this.#make = options;
  }

  get isOnline() {
    return this.seat?.client.state === "online";
  }

  open() {
    if (this.seat) return;
    const root = $("second");
    root.hidden = false;
    const seat = new Seat({ ...this.#make, root, list: root.querySelector(".rooms"), again: () => this.#again() });
    this.seat = seat;
    seat.isLookedAt = false;
    seat.rooms.onChange = () => this.#draw();
    const { client } = seat;
    client.on("state", () => (this.#draw(), this.onChange()));
    client.inbox.on("badge", () => this.#draw());
    client.presence.watch(this.#make.me.id, () => this.#draw());
    seat.start();
    this.#draw();
    this.onChange();
  }

  close() {
    this.seat?.close();
    this.seat = null;
    $("second").hidden = true;
    this.onChange();
  }

  #again() {
    this.close();
    this.open();
  }

  #draw() {
    if (!this.seat) return;
    const { client, rooms } = this.seat;
    const own = client.presence.of(this.#make.me.id);
    const isInvisible = own?.status === "invisible";
    const isLive = client.state === "online";
    const state = !isLive || !own ? "offline" : isInvisible ? "invisible" : own.state;
    const root = $("second");
    root.querySelector(".own .dot").dataset.state = state;
    setText(root.querySelector(".own .state"), !isLive ? "not connected" : own ? state : "…");
    const bell = root.querySelector(".bell .badge");
    setBadge(bell, client.inbox.unread, "unread notifications");
    bell.classList.toggle("quiet", client.inbox.unseen === 0); // seen, but not read
    setText(root.querySelector(".unread-sum"), rooms.unread ? `${rooms.unread} unread` : "all read");
  }
}
