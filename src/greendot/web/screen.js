// Screen of one user: the first device with rooms, people, status and bell, and the second device.

import { $, disclose, make, setBadge, setText } from "./dom.js";
import { InboxView } from "./inbox.js";
import { randomId } from "./names.js";
import { People } from "./people.js";
import { Seat } from "./seat.js";
import { SecondDevice } from "./second.js";
import { StatusView } from "./status.js";
import { recall, remember } from "./store.js";
import { setServerTime } from "./times.js";
import { hush, say } from "./toast.js";

const DEVICES = "devices"; // signal of a user whose devices changed: the server publishes states, not devices
const MEETING_ROOM = "lobby"; // all users of the demo are in this room
const GRACE_OVER_MS = 500; // the server has usually ended the session by then
const LATEST_MS = 16_000; // longest pause between two checks; afterwards others notice at their next poll
const SIGNS = ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"];

export class Screen {
  #me;
  #periods;
  #people;
  #seat;
  #second;
  #secondId; // id of the second device
  #status;
  #inbox;
  #here;
  #ending = new AbortController();

  constructor(me, periods, again) {
    this.#me = me;
    this.#periods = periods;
    const kinds = isPhone() ? ["phone", "laptop"] : ["web", "phone"];
    setText($("second-title"), `Your ${kinds[1]}`);
    $("two-icon").setAttribute("href", kinds[1] === "phone" ? "#i-phone" : "#i-screen");
    this.#people = new People($("people"), me);
    const shared = { me, people: this.#people, periods };
    this.#seat = new Seat({ ...shared, root: $("first"), list: $("rooms"), device: device(kinds[0]), again });
    this.#secondId = device(kinds[1]);
    this.#second = new SecondDevice({ ...shared, device: this.#secondId });
    const { client } = this.#seat;
    const complain = (words) => say(String(words?.message ?? words));
    this.#status = new StatusView({ me, client, people: this.#people, complain });
    this.#inbox = new InboxView({ client, me, people: this.#people, complain });
    this.#people.onChange = () => this.#drawPeople();
    this.#people.onNotify = (id) => this.#notify(id, complain);
    this.#seat.isOtherOnline = () => this.#second.isOnline;
    this.#seat.rooms.onChange = () => this.#drawRoom();
    this.#seat.rooms.onChosen = () => this.#chosen();
    this.#second.onChange = () => this.#drawSecond();
    client.on("state", () => (this.#drawPeople(), this.#drawRoom()));
    client.on("welcome", () => setServerTime(client.now()));
    client.room(MEETING_ROOM).on("signal", ({ kind, from }) => kind === DEVICES && this.#people.ask(from));
    this.#listen();
  }

  start() {
    this.#people.start(this.#seat.client);
    this.#seat.start();
    if (recall("second")) this.#second.open();
    this.#drawPeople();
  }

  close() {
    this.#second.close();
    for (const part of [this.#inbox, this.#status, this.#people, this.#seat]) part.close();
    this.#ending.abort();
    this.#openDrawer(false);
    hush();
  }

  watch(id, name) {
    this.#people.meet(id, name);
    this.#people.focus(id);
  }

  focus() {
    this.#seat.rooms.current?.focus();
  }

  get #seats() {
    return [this.#seat, this.#second.seat].filter(Boolean);
  }

  #listen() {
    const { signal } = this.#ending;
    this.#here = disclose($("here"), $("here-list"), { onChange: (open) => open && this.#drawHere(), signal });
    const how = { passive: true, capture: true, signal };
    for (const sign of SIGNS) addEventListener(sign, (event) => this.#sign(event), how);
    for (const sign of ["focus", "visibilitychange"]) {
      addEventListener(sign, () => this.#look(), { signal });
    }
    addEventListener("pagehide", () => this.#seats.forEach((seat) => seat.rooms.close()), { signal });
    $("two").addEventListener("click", () => this.#toggleSecond(), { signal });
    $("second-close").addEventListener("click", () => this.#toggleSecond(), { signal });
    $("menu").addEventListener("click", () => this.#openDrawer(true), { signal });
    $("side-close").addEventListener("click", () => this.#openDrawer(false), { signal });
    $("veil").addEventListener("click", () => this.#openDrawer(false), { signal });
    $("side").addEventListener("keydown", (event) => event.key === "Escape" && this.#openDrawer(false), { signal });
  }

  /** Note activity at one of the two devices: the user is at that device. */
  #sign(event) {
    const isSecond = this.#second.seat && $("second").contains(event.target);
    const seat = isSecond ? this.#second.seat : this.#seat;
    seat.client.active();
    if (event.type === "pointermove" || seat.isLookedAt) return;
    for (const other of this.#seats) other.isLookedAt = other === seat;
    this.#look();
  }

  #look() {
    if (document.visibilityState !== "visible") return;
    for (const seat of this.#seats) seat.rooms.current?.seen();
  }

  #toggleSecond() {
    if (this.#second.seat) this.#second.close();
    else this.#second.open();
    remember("second", Boolean(this.#second.seat));
    if (!this.#second.seat) {
      this.#announceEnd();
      this.#seat.isLookedAt = true;
      $("two").focus();
    }
  }

  #drawSecond() {
    const isOpen = Boolean(this.#second.seat);
    $("app").classList.toggle("with-second", isOpen);
    $("two").setAttribute("aria-pressed", String(isOpen));
    this.#people.ask(this.#me.id);
    this.#announceDevices();
  }

  /** Announce the devices again when the server has ended the session of the closed device, after its grace or later. */
  async #announceEnd() {
    await pause(this.#periods.clean_grace_s * 1_000);
    for (let ms = GRACE_OVER_MS; ms <= LATEST_MS; ms *= 2) {
      await pause(ms);
      if (this.#ending.signal.aborted || this.#second.seat) return;
      await this.#people.ask(this.#me.id);
      if (!this.#people.devicesOf(this.#me.id).includes(this.#secondId)) break;
    }
    this.#announceDevices();
  }

  /** Let other users read the devices of this user again. An invisible user must not be noticed. */
  #announceDevices() {
    if (this.#ending.signal.aborted || this.#people.own?.status === "invisible") return;
    this.#seat.client.room(MEETING_ROOM).signal(DEVICES);
  }

  async #notify(id, complain) {
    try {
      await this.#inbox.notify(id);
      say(`Notification sent to ${this.#people.nameOf(id)}.`);
    } catch (error) {
      complain(error);
    }
  }

  #chosen() {
    this.#openDrawer(false);
    if (matchMedia("(hover: hover)").matches) this.focus(); // on a phone this would open the keyboard
  }

  /** Open or close the drawer with rooms and people, on a phone. */
  #openDrawer(isOpen) {
    const wasOpen = $("app").classList.toggle("drawer", isOpen) !== isOpen;
    $("veil").hidden = !isOpen;
    $("desk").inert = isOpen;
    $("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) $("side-close").focus();
    else if (wasOpen || $("side").contains(document.activeElement)) $("menu").focus();
  }

  #drawPeople() {
    if (this.#ending.signal.aborted) return; // a late reply, after the user left
    const known = this.#people.ids.length;
    const isLive = this.#seat.client.state === "online";
    $("nobody").hidden = known > 0;
    $("people").hidden = known === 0;
    $("people").classList.toggle("stale", !isLive);
    setText($("people-note"), known === 0 ? "" : isLive ? `${this.#people.here} of ${known} online` : "as last known");
    this.#status.draw();
    for (const seat of [this.#seat, this.#second.seat]) seat?.rooms.drawNames();
  }

  #drawRoom() {
    const { rooms, client } = this.#seat;
    const talk = rooms.current;
    if (!talk || this.#ending.signal.aborted) return;
    setText($("room-title"), talk.name);
    const count = client.state === "online" ? talk.room.count : null;
    setText($("present"), talk.isRemoved ? "you are no longer in this room" : presentWords(count));
    $("here").disabled = !count || talk.isRemoved;
    if (!$("here-list").hidden) this.#drawHere();
    const elsewhere = rooms.unread - talk.unread;
    setBadge($("menu-badge"), elsewhere, "unread");
    setText($("menu-word"), `Rooms and people${elsewhere ? `, ${elsewhere} unread` : ""}`);
    document.title = `${rooms.unread ? `(${rooms.unread}) ` : ""}${this.#me.name} · Greendot`;
  }

  #drawHere() {
    const ids = [...this.#seat.rooms.current.present].sort((a, b) =>
      this.#people.nameOf(a).localeCompare(this.#people.nameOf(b)),
    );
    const items = ids.map((id) => {
      const dot = make("span", "dot");
      dot.dataset.state = id === this.#me.id ? (this.#people.own?.state ?? "offline") : this.#people.stateOf(id);
      const item = make("li", "", dot, make("bdi", "name", this.#people.nameOf(id)));
      if (id === this.#me.id) item.append(make("span", "you", "you"));
      return item;
    });
    $("here-list").querySelector("ul").replaceChildren(...items);
  }
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

function presentWords(count) {
  if (count === null) return "not connected";
  return count <= 1 ? "only you are here" : `${count} people here`;
}

function isPhone() {
  return navigator.userAgentData?.mobile || /Mobi|iPhone|iPod/.test(navigator.userAgent);
}

/** Return the device id of this tab. A reload keeps it; another tab has another id. */
function device(kind) {
  const known = recall(`device.${kind}`) ?? `${kind}-${randomId()}`;
  remember(`device.${kind}`, known);
  return known;
}
