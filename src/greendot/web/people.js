// The people this tab knows: who they are, how they stand, and the list of them.

import { onceAFrame } from "./dom.js";
import { PersonRow } from "./person.js";
import { recall, remember } from "./store.js";
import { agoNext } from "./times.js";

const RANK = { online: 0, busy: 1, idle: 2, offline: 3 };
const MOST = 300; // people remembered; the first to go are those who have been away longest
const DEVICES_MS = 20_000; // which devices people have is not told, only answered
const ARRIVED_MS = 1_000; // those who come together are asked about together
const LONGEST_MS = 60_000; // between two looks at the clock

const alphabet = new Intl.Collator();

export class People {
  #list;
  #me;
  #client = null;
  #names = new Map(); // id → name as last heard, or null
  #entries = new Map(); // id → presence entry
  #devices = new Map(); // id → devices as last answered
  #watches = new Map(); // id → undo
  #rows = new Map(); // id → PersonRow
  #changed = new Set(); // ids to be drawn
  #isSorted = true;
  #isKept = true; // names are remembered as they are
  #isHeld = false; // the pointer or the focus is in the list: nothing moves under it
  #ageing = null;
  #asking = null;
  #arrived = null; // somebody came whose devices are not known
  #ending = new AbortController();
  #drawSoon = onceAFrame(() => this.#draw());
  onChange = () => {}; // drawn anew
  onNotify = () => {}; // somebody is to be sent a notification

  constructor(list, me) {
    this.#list = list;
    this.#me = me;
    this.#listen();
  }

  /** Follow everybody who is known, and whoever is met from now on. */
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
    // Whoever one was before is a person like any other to whom one is next.
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

  /** Somebody is known from now on. */
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

  /** Which devices these people have now. */
  async ask(...ids) {
    try {
      for (const entry of await this.#client.presence.get(ids)) this.#heard(entry);
    } catch {
      // Not connected: who comes back is told how everybody stands.
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
    if (!this.#names.has(user)) return; // just forgotten
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

  /** One stop for the tabulator, arrows within. */
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

  /** Rows that stand where they should are not touched. */
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

  /** “Last seen” goes on by itself: look again when the first of them says something else. */
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
