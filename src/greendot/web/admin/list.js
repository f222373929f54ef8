// List of the users online, or of the rooms, whose ids begin with the text of the search field; or of the audit.

import { $, h, say } from "./dom.js";
import { moment, number } from "./format.js";

const TYPED_MS = 250; // pause in typing before the list is read
const EVERY_MS = 5_000;
const KINDS = {
  user: { title: "Users online", head: ["User", "State", "Since", "Devices", "Actions"], command: "list.users" },
  room: { title: "Rooms", head: ["Room", "Access", "Messages", "Members", "Listeners", "Actions"], command: "list.rooms" },
  audit: { title: "Audit", head: ["Time", "Action", "Room", "User", "Message", "Who", "Reason"], command: "list.audit" },
};
const NUMBERS = new Set(["Messages", "Members", "Listeners", "Message"]);

/** `find` has the connection, the rights and the search form. */
export class List {
  constructor(find) {
    this.find = find;
    this.isShown = false;
    this.pages = 1; // pages shown; “More” adds one
    this.asked = 0; // number of the last request: replies to earlier ones are dropped
    this.typing = null;
    $("listed-more").firstElementChild.addEventListener("click", () => {
      this.pages += 1;
      this.refresh();
    });
    setInterval(() => document.visibilityState === "visible" && this.refresh(), EVERY_MS);
  }

  show(isShown) {
    this.isShown = isShown;
    this.refresh();
  }

  /** Read the list again after a pause in typing. */
  soon() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.restart(), TYPED_MS);
  }

  restart() {
    this.pages = 1;
    this.refresh();
  }

  async refresh() {
    const { link, who, what } = this.find;
    const may = who && (who.every || who.tenant !== null);
    $("listed").hidden = !may;
    if (!may || !this.isShown) return;
    const asked = ++this.asked;
    try {
      const found = await this.read(link, who, what);
      if (asked === this.asked) this.draw(what, found);
    } catch (error) {
      if (asked === this.asked) say($("listed-count"), error.message);
    }
  }

  async read(link, who, what) {
    const prefix = $("name").value.trim();
    const command = { type: KINDS[what].command, ...(what === "audit" ? { room: prefix || null } : { prefix }) };
    if (who.every) command.tenant = $("tenant").value.trim() || "default";
    const rows = [];
    let page = { next: null };
    for (let pages = 0; pages < this.pages; pages++) {
      page = await link.ask({ ...command, ...(pages ? { after: page.next } : {}) });
      rows.push(...page[`${what}s`]);
      if (page.next === null) break;
    }
    return { ...page, rows, prefix };
  }

  draw(what, { rows, next, total, tenant, prefix }) {
    const { title, head } = KINDS[what];
    say($("listed-heading"), title);
    const shown = `${number(rows.length)}${next === null ? "" : " or more"}`;
    const of = what === "user" && prefix ? ` of ${number(total)}` : "";
    const begin = !prefix ? "" : what === "audit" ? `, in room “${prefix}”` : `, ids that begin with “${prefix}”`;
    say($("listed-count"), rows.length ? `${shown}${of}${begin}` : `none${of}${begin}`);
    $("listed-more").hidden = next === null;
    const cells = head.map((label) => h("th", { scope: "col", class: NUMBERS.has(label) ? "number" : null }, label));
    $("list").tHead.replaceChildren(h("tr", {}, cells));
    $("list").closest(".sheet").hidden = rows.length === 0;
    const made = rows.map((row) => this[what](row, tenant, head));
    place($("list").tBodies[0], made);
  }

  user({ shown, name, devices }, tenant, head) {
    const { user, state, since, status } = shown;
    const again = () => {}; // the list is refreshed after every action
    const target = { user, tenant };
    const act = (label, does, look) => this.find.button(label, { do: does, ...target }, again, look, ` ${user}`);
    return this.row(head, user, [
      [h("span", { class: "dot", "data-state": status === "invisible" ? "invisible" : state, "aria-hidden": "true" }), this.open("user", user, tenant), name && name !== user ? h("span", { class: "soft" }, ` ${name}`) : null],
      [state],
      [moment(since)],
      [[...new Set(devices.map((device) => device.split("-")[0]))].join(", ") || "–"],
      [h("div", { class: "line row-acts" }, act("Notify", "notify", "quiet"), act("Disconnect", "disconnect", "quiet"), act("Revoke", "revoke", "quiet"))],
    ]);
  }

  room(it, tenant, head) {
    const act = (label, does) => this.find.button(label, { do: does, room: it.room, tenant }, () => {}, "quiet", ` ${it.room}`);
    return this.row(head, it.room, [
      [this.open("room", it.room, tenant)],
      [`${it.open ? "open to all" : "members only"}${it.archived ? ", archived" : ""}`],
      [number(it.head)],
      [number(it.members)],
      [number(it.listeners)],
      [h("div", { class: "line row-acts" },
        h("button", { type: "button", class: "quiet", onclick: () => this.find.look("room", it.room, tenant) }, "Members", h("span", { class: "unseen" }, ` and occupants of ${it.room}`)),
        act(it.archived ? "Reopen" : "Archive", it.archived ? "unarchive" : "archive"),
        act("Delete", "delete"))],
    ]);
  }

  audit(it, tenant, head) {
    const link = (what, id) => (id === null ? "–" : this.open(what, id, tenant));
    return this.row(head, it.number, [
      [moment(it.at)],
      [it.until === null ? it.action : `${it.action} until ${moment(it.until)}`],
      [link("room", it.room)],
      [link("user", it.user)],
      [it.ref === null ? "–" : number(it.ref)],
      [it.actor || "–"],
      [it.reason ?? "–"],
    ]);
  }

  row(head, id, cells) {
    const [first, ...rest] = cells;
    return h("tr", { "data-id": id }, h("th", { scope: "row" }, first),
      rest.map((content, index) => {
        const label = head[index + 1];
        return h("td", { "data-label": label, class: NUMBERS.has(label) ? "number" : null }, content);
      }));
  }

  open(what, id, tenant) {
    return h("button", { type: "button", class: "id", onclick: () => (this.find.what === "audit" ? this.find.open(what, id, tenant) : this.find.look(what, id, tenant)) }, id);
  }
}

/** Replace the rows. A row that has not changed stays, and with it the focus. */
function place(body, rows) {
  const known = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const wanted = rows.map((row) => {
    const there = known.get(row.dataset.id);
    return there?.textContent === row.textContent && there.innerHTML === row.innerHTML ? there : row;
  });
  for (const row of [...body.rows]) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, at) => body.rows[at] !== row && body.insertBefore(row, body.rows[at] ?? null));
}
