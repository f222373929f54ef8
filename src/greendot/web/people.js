// Users known to this tab: names, presence, devices, and the list of them.

import { onceAFrame } from "./dom.js";
import { PersonRow } from "./person.js";
import { recall, remember } from "./store.js";
import { agoNext } from "./times.js";

const RANK = { online: 0, busy: 1, idle: 2, offline: 3 };
const MOST = 300; // users remembered; those offline for longest are removed first
const DEVICES_MS = 20_000; // interval of polling: changes of devices are not published
const ARRIVED_MS = 1_000; // delay, to read the devices of several arrivals together
const LONGEST_MS = 60_000; // longest time between two updates of “last seen”

const alphabet = new Intl.Collator();

export class People {
  #list;
  #me;
  #client = null;
  #names = new Map(); // id → last known name, or null
  #entries = new Map(); // id → presence entry
  #devices = new Map(); // id → devices of the last reply
  #watches = new Map(); // id → undo
  #rows = new Map(); // id → PersonRow
  #changed = new Set(); // ids to draw
  #isSorted = true;
  #isKept = true; // the current names are stored
  #isHeld = false; // the pointer or the focus is in the list: rows must not move
  #ageing = null;
  #asking = null;
  #arrived = null; // timer to read the devices of users who came online
  #ending = new AbortController();
  #drawSoon = onceAFrame(() => this.#draw());
  onChange = () => {}; // the list was drawn
  onNotify = () => {}; // the user asked to send a notification to this id

  constructor(list, me) {
    this.#list = list;
    this.#me = me;
    this.#listen();
  }

  /** Watch all known users, and those who become known later. */
  start(client) {
    this.#client = client;
    this.#names.set(this.#me.id, this.#me.name);
    const known = Object.entries(recall("people") ?? {}).filter(([id]) => id !== this.#me.id);
    for (const [id, name] of known) this.#names.set(id, name);
    for (const id of this.#names.keys()) this.#watch(id);
    this.#asking = setInterval(() => this.#askDevices(), DEVICES_MS);
    this.#isSorted = false;
    this.#drawSoon();
  }

  close() {
    clearInterval(this.#asking);
    clearTimeout(this.#arrived);
    clearTimeout(this.#ageing);
    this.#ending.abort();
    // Own name included: after a new sign-in it is the name of another user.
    remember("people", Object.fromEntries(this.#names));
    this.#list.replaceChildren();
  }

  get own() {
    return this.#entries.get(this.#me.id);
  }

  get ids() {
    return [...this.#names.keys()].filter((id) => id !== this.#me.id);
  }

  get here() {
    return this.ids.filter((id) => this.stateOf(id) !== "offline").length;
  }

  nameOf(id) {
    return this.#entries.get(id)?.name || this.#names.get(id) || id;
  }

  stateOf(id) {
    return this.#entries.get(id)?.state ?? "offline";
  }

  devicesOf(id) {
    return this.stateOf(id) === "offline" && id !== this.#me.id ? [] : (this.#devices.get(id) ?? []);
  }

  /** Add a user, or update the name. */
  meet(id, name = null) {
    if (!id || id === this.#me.id) return;
    if (this.#names.has(id)) {
      if (name && this.#names.get(id) !== name) this.#set(id, name);
      return;
    }
    this.#set(id, name);
    this.#watch(id);
    if (this.#names.size > MOST) this.#forgetOldest(id);
  }

  forget(id) {
    this.#watches.get(id)?.();
    for (const map of [this.#names, this.#entries, this.#devices, this.#watches]) map.delete(id);
    this.#rows.get(id)?.element.remove();
    this.#rows.delete(id);
    this.#isKept = false;
    this.#drawSoon();
  }

  focus(id) {
    this.#draw();
    this.#rows.get(id)?.element.scrollIntoView({ block: "nearest" });
  }

  /** Read the current devices of users. */
  async ask(...ids) {
    try {
      for (const entry of await this.#client.presence.get(ids)) this.#heard(entry);
    } catch {
      // Not connected: after the reconnect the client receives all states.
    }
  }

  #set(id, name) {
    this.#names.set(id, name);
    this.#isSorted = this.#isKept = false;
    this.#changed.add(id);
    this.#drawSoon();
  }

  #watch(id) {
    this.#watches.set(id, this.#client.presence.watch(id, (entry) => this.#heard(entry)));
  }

  #heard(entry) {
    const { user, devices, name } = entry;
    if (!this.#names.has(user)) return; // removed meanwhile
    const known = this.#entries.get(user);
    if (!known || known.version <= entry.version || entry.version === 0) this.#entries.set(user, entry);
    if (devices) this.#devices.set(user, devices);
    else if (entry.state === "offline") this.#devices.delete(user);
    else if (!this.#devices.has(user)) this.#arrived ??= setTimeout(() => this.#askDevices(), ARRIVED_MS);
    if (name && this.#names.get(user) !== name) this.#set(user, name);
    if (known?.state !== entry.state) this.#isSorted = false;
    this.#changed.add(user);
    this.#drawSoon();
  }

  #askDevices() {
    this.#arrived = null;
    if (document.visibilityState !== "visible" || this.#client.state !== "online") return;
    const here = this.ids.filter((id) => this.stateOf(id) !== "offline");
    this.ask(this.#me.id, ...here);
  }

  // The list

  #listen() {
    const { signal } = this.#ending;
    const hold = (isHeld) => () => {
      this.#isHeld = isHeld;
      if (!isHeld) this.#drawSoon();
    };
    for (const type of ["pointerenter", "focusin"]) this.#list.addEventListener(type, hold(true), { signal });
    for (const type of ["pointerleave", "focusout"]) this.#list.addEventListener(type, hold(false), { signal });
    this.#list.addEventListener("keydown", (event) => this.#moved(event), { signal });
    document.addEventListener("visibilitychange", () => this.#drawSoon(), { signal });
  }

  /** Move the focus with the arrow keys: the list is one tab stop. */
  #moved(event) {
    const rows = [...this.#list.children].map((item) => item.querySelector(".row"));
    const at = rows.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (at < 0 || to === undefined || !rows[to]) return;
    event.preventDefault();
    rows[at].tabIndex = -1;
    rows[to].tabIndex = 0;
    rows[to].focus();
  }

  #draw() {
    if (this.#ending.signal.aborted || !this.#client) return;
    const ids = this.ids;
    for (const id of ids) {
      const row = this.#rows.get(id) ?? this.#makeRow(id);
      if (this.#changed.has(id) || row.isDue) this.#drawRow(row, id);
    }
    this.#changed.clear();
    if (!this.#isHeld && !this.#isSorted) this.#sort(ids);
    this.#age(ids);
    if (!this.#isKept) remember("people", Object.fromEntries(this.#names));
    this.#isKept = true;
    this.onChange();
  }

  #drawRow(row, id) {
    row.draw(this.nameOf(id), this.#entries.get(id) ?? null, this.devicesOf(id));
  }

  #makeRow(id) {
    const row = new PersonRow(id, {
      opened: () => this.ask(id),
      forget: () => this.forget(id),
      notify: () => this.onNotify(id),
    });
    this.#rows.set(id, row);
    this.#changed.add(id);
    this.#list.append(row.element);
    row.press.tabIndex = this.#list.children.length === 1 ? 0 : -1;
    return row;
  }

  /** Sort the rows. Rows that are in their place are not touched. */
  #sort(ids) {
    this.#isSorted = true;
    let next = this.#list.firstElementChild;
    for (const id of ids.sort((a, b) => this.#compare(a, b))) {
      const { element } = this.#rows.get(id);
      if (element === next) next = next.nextElementSibling;
      else this.#list.insertBefore(element, next);
    }
    const rows = [...this.#rows.values()];
    if (rows.length && !rows.some(({ press }) => press.tabIndex === 0)) rows[0].press.tabIndex = 0;
  }

  #compare(a, b) {
    return (
      RANK[this.stateOf(a)] - RANK[this.stateOf(b)] ||
      alphabet.compare(this.nameOf(a), this.nameOf(b)) ||
      (a < b ? -1 : 1)
    );
  }

  /** Draw again when the first “last seen” text changes. */
  #age(ids) {
    clearTimeout(this.#ageing);
    const seen = ids.map((id) => this.#entries.get(id)?.last_seen ?? null).filter((time) => time !== null);
    const next = Math.min(LONGEST_MS, ...seen.map(agoNext));
    this.#ageing = setTimeout(() => this.#drawSoon(), next + 50);
  }

  #forgetOldest(except) {
    const seen = (id) => (this.stateOf(id) === "offline" ? (this.#entries.get(id)?.last_seen ?? 0) : Infinity);
    const [oldest] = this.ids.filter((id) => id !== except).sort((a, b) => seen(a) - seen(b));
    if (oldest !== undefined) this.forget(oldest);
  }
}
