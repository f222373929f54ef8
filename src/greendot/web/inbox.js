// The bell and the list of notifications, the same on all devices of the user.

import { $, button, disclose, make, setBadge, setText } from "./dom.js";
import { linked } from "./links.js";
import { post } from "./seat.js";
import { ago, exact } from "./times.js";

const PAGE = 30;
const TOAST_MS = 6_000;

export class InboxView {
  #client;
  #me;
  #people;
  #entries = new Map(); // id → entry
  #head = 0;
  #isOpen = false;
  #panel;
  #toasting = null;
  #ending = new AbortController();

  constructor({ client, me, people, complain }) {
    this.#client = client;
    this.#me = me;
    this.#people = people;
    const { signal } = this.#ending;
    this.#panel = disclose($("bell"), $("inbox"), { onChange: (open) => this.#opened(open), signal });
    $("inbox-close").addEventListener("click", () => this.#panel.close(), { signal });
    $("read-all").addEventListener("click", () => this.#mark(client.inbox.read({ through: this.#head })), { signal });
    $("notify-me").addEventListener("click", () => this.notify(me.id).catch(complain), { signal });
    $("toast").addEventListener("click", () => this.#panel.open(), { signal });
    client.inbox.on("badge", () => (this.#drawBadge(), this.#see()));
    client.inbox.on("created", (entry) => this.#created(entry));
    client.inbox.on("updated", (marked) => this.#updated(marked));
    client.inbox.on("resync", () => this.#fetch());
    client.on("welcome", () => this.#fetch());
    this.#drawBadge();
    this.#draw();
  }

  close() {
    this.#panel.close();
    this.#ending.abort();
    $("toast").hidden = true;
  }

  /** Send a user a notification, as an app's backend would. */
  async notify(user) {
    const isMe = user === this.#me.id;
    const text = isMe ? "This is the notification that you requested." : `${this.#me.name} waves at you.`;
    const answer = await post("dev/notify", { user, text, sender: this.#me.name });
    if (!answer.ok) throw new Error(`The notification was not sent: the server answered ${answer.status}. Try again.`);
  }

  #opened(isOpen) {
    this.#isOpen = isOpen;
    if (!isOpen) return;
    $("toast").hidden = true;
    this.#draw();
    this.#see();
  }

  #see() {
    const { inbox } = this.#client;
    if (this.#isOpen && this.#head && inbox.unseen) this.#mark(inbox.seen({ through: this.#head }));
  }

  async #fetch() {
    try {
      const { notifications, head } = await this.#client.inbox.list({ limit: PAGE });
      this.#entries = new Map(notifications.map((entry) => [entry.id, entry]));
      this.#head = head;
      this.#draw();
      this.#see();
    } catch {
      // Fetched again after the next welcome.
    }
  }

  #created(entry) {
    this.#entries.set(entry.id, { seen_at: null, read_at: null, archived_at: null, ...entry });
    this.#head = Math.max(this.#head, entry.seq);
    this.#draw();
    this.#see();
    if (this.#isOpen) return;
    setText($("toast-text"), textOf(entry.body));
    $("toast").hidden = false;
    clearTimeout(this.#toasting);
    this.#toasting = setTimeout(() => ($("toast").hidden = true), TOAST_MS);
  }

  /** Apply marks that were set here or on another device. */
  #updated({ state, ids, through }) {
    const fields = { seen: ["seen_at"], read: ["seen_at", "read_at"], archived: ["archived_at"], acked: ["acked_at"] };
    for (const entry of this.#entries.values()) {
      if (!(ids ? ids.includes(entry.id) : entry.seq <= through)) continue;
      for (const field of fields[state] ?? []) entry[field] ??= Date.now();
    }
    this.#draw();
  }

  async #mark(marking) {
    try {
      await marking;
    } catch {
      // The client is closed; the state of the connection shows the reason.
    }
  }

  #drawBadge() {
    const { unread, unseen } = this.#client.inbox;
    setBadge($("bell-badge"), unread, "unread");
    $("bell-badge").classList.toggle("quiet", unseen === 0); // seen, but not read
    setText($("bell-word"), unread ? `Notifications, ${unread} unread` : "Notifications");
    $("read-all").hidden = unread === 0;
  }

  #draw() {
    const shown = [...this.#entries.values()].filter(({ archived_at: gone }) => !gone).sort((a, b) => b.seq - a.seq);
    $("inbox-empty").hidden = shown.length > 0;
    $("notifications").replaceChildren(...shown.map((entry) => this.#makeItem(entry)));
  }

  #makeItem(entry) {
    const { id, body, created_at: at, read_at: read, ack, acked_at: acked } = entry;
    const { inbox } = this.#client;
    const time = make("time", "", ago(at));
    time.dateTime = new Date(at).toISOString();
    time.title = exact(at);
    const text = make("p", "text", ...linked(textOf(body)));
    text.dir = "auto";
    const tools = make("p", "line");
    const add = (word, mark) => {
      const press = button("link", word, () => {
        $("notifications").focus({ preventScroll: true }); // the button disappears
        this.#updated(mark.told);
        this.#mark(mark.done());
      });
      press.setAttribute("aria-label", `${word}: ${textOf(body)}`);
      tools.append(press);
    };
    if (ack && !acked) add("Acknowledge", { told: { state: "acked", ids: [id] }, done: () => inbox.ack(id) });
    if (!read) add("Mark read", { told: { state: "read", ids: [id] }, done: () => inbox.read(id) });
    add("Archive", { told: { state: "archived", ids: [id] }, done: () => inbox.archive(id) });
    const mark = make("span", "mark-new");
    mark.hidden = Boolean(read);
    const item = make("li", read ? "entry" : "entry unread", mark, text, make("p", "about", time), tools);
    if (!read) text.prepend(make("span", "unseen", "Unread: "));
    return item;
  }
}

function textOf(body) {
  return typeof body?.text === "string" ? body.text : "(a notification this page cannot show)";
}
