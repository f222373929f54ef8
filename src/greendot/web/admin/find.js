// Search for a user or a room, and the result.

import { act } from "./acts.js";
import { $, h, say } from "./dom.js";
import { ago, moment, number } from "./format.js";
import { List } from "./list.js";

/** View of the search. `link` is the current connection; `who` has the rights of the key. */
export class Find {
  constructor() {
    this.link = null;
    this.who = null;
    this.list = new List(this);
    $("search").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.what === "audit") this.list.restart();
      else this.look(this.what, $("name").value.trim(), $("tenant").value.trim());
    });
    for (const input of document.querySelectorAll('input[name="what"]')) {
      input.addEventListener("change", () => this.chosen());
    }
    for (const input of [$("name"), $("tenant")]) input.addEventListener("input", () => this.list.soon());
  }

  get what() {
    return document.querySelector('input[name="what"]:checked').value;
  }

  chosen() {
    say($("name-label"), this.what === "user" ? "User id" : "Room id");
    if (this.what === "audit") $("found").replaceChildren();
    this.list.restart();
  }

  /** Show or leave the view. The list is refreshed while the view is shown. */
  show(isShown) {
    this.list.show(isShown);
  }

  welcome(link, who) {
    Object.assign(this, { link, who });
    $("tenant-field").hidden = !who.every;
    $("tenants").replaceChildren(...who.tenants.map((tenant) => h("option", { value: tenant })));
    const may = who.every || who.tenant !== null;
    say($("search-hint"), may ? "" : "This key shows nodes only. Use a tenant’s admin key to find users and rooms.");
    for (const part of $("search").elements) part.disabled = !may;
    this.list.restart();
  }

  /** Search for a name that the viewer clicked elsewhere on the page. */
  open(what, name, tenant) {
    location.hash = "find";
    document.querySelector(`input[name="what"][value="${what}"]`).checked = true;
    $("name").value = name;
    $("tenant").value = tenant;
    this.chosen();
    this.look(what, name, tenant);
  }

  async look(what, name, tenant) {
    if (!name) {
      say($("search-hint"), `Enter the id of a ${what}.`);
      $("name").focus();
      return;
    }
    const command = { type: `find.${what}`, [what]: name };
    if (this.who.every) command.tenant = tenant || "default";
    try {
      const found = await this.link.ask(command);
      say($("search-hint"), found.known ? "" : `Tenant ${found.tenant} has no ${what} “${name}”. Check the id.`);
      const again = () => this.look(what, name, tenant);
      replace($("found"), found.known ? [what === "user" ? this.user(found, again) : this.room(found, again)] : []);
    } catch (error) {
      say($("search-hint"), error.message);
      $("found").replaceChildren();
    }
  }

  // --- a user ---

  user(found, again) {
    const { own, seen_as: seen } = found;
    const hidden = own.state !== seen.state ? `; others see ${seen.state}` : "";
    const since = own.since ? ` since ${moment(own.since)}` : "";
    const seenAt = own.state === "offline" && own.last_seen ? `, last seen ${moment(own.last_seen)}` : "";
    return h("article", { class: "found" },
      this.head(found.name ?? found.user, found.user, found.tenant, own.state, `${own.state}${since}${seenAt}${hidden}`, again),
      h("div", { class: "facts" },
        fact("Sessions", number(found.sessions.length)),
        fact("Unread", number(found.inbox.unread), `${number(found.inbox.unseen)} unseen of ${number(found.inbox.head)}`),
        fact("Rooms", number(found.room_count)),
        fact("Status", found.status?.status ?? "auto", statusWords(found.status)),
        fact("Watchers", number(found.watchers.count), watchWords(found)),
        fact("Tokens", found.revoked_before ? "revoked" : "not revoked",
          found.revoked_before ? `all issued before ${moment(found.revoked_before)}` : ""),
        fact("Moderation", restrictedWord(found.restrictions), restrictedUntil(found.restrictions)),
      ),
      h("div", { class: "line acts" },
        this.button("Send test notification", { do: "notify", user: found.user, tenant: found.tenant }, again),
        this.button("Disconnect all sessions", { do: "disconnect", user: found.user, tenant: found.tenant }, again),
        this.button("Revoke all tokens", { do: "revoke", user: found.user, tenant: found.tenant }, again, "warning"),
        this.button("mute" in found.restrictions ? "End mute" : "Mute", { do: "mute" in found.restrictions ? "unmute" : "mute", user: found.user, tenant: found.tenant }, again, "warning"),
        this.button("ban" in found.restrictions ? "End ban" : "Ban", { do: "ban" in found.restrictions ? "unban" : "ban", user: found.user, tenant: found.tenant }, again, "warning"),
      ),
      found.info ? info(found.info) : null,
      h("h3", {}, "Sessions"),
      found.sessions.length ? h("ul", { class: "sessions" }, found.sessions.map((it) => this.session(found, it, again)))
        : h("p", { class: "empty" }, "No sessions. The user is not connected."),
      h("h3", {}, "Rooms"),
      found.rooms.length ? this.rooms(found) : h("p", { class: "empty" }, "No rooms."),
    );
  }

  session(found, it, again) {
    const token = it.token_expires_at ? `token ${it.token_id ? `${it.token_id} ` : ""}until ${moment(it.token_expires_at)}` : null;
    const details = [
      `node ${it.node}`,
      it.client || null,
      it.connected_at ? `connected ${moment(it.connected_at)}` : null,
      it.last_heard ? `last frame ${ago(Date.now() - it.last_heard)}` : null,
      token,
      it.rooms.length ? `in ${it.rooms.slice(0, 5).join(", ")}${it.rooms.length > 5 ? " …" : ""}` : null,
      it.watches ? `watches ${number(it.watches)} users` : null,
      it.behind ? "frames wait in its send buffer" : null,
    ].filter(Boolean);
    const state = it.state === "lingering" ? "offline" : it.state;
    return h("li", {},
      h("span", { class: "dot", "data-state": state, "aria-hidden": "true" }),
      h("div", {},
        h("p", { class: "title" }, h("b", {}, it.device || "device"), ` ${it.state} `, h("code", {}, it.session)),
        h("p", { class: "soft" }, details.join(" · ")),
      ),
      h("div", { class: "line" },
        this.button("Disconnect", { do: "disconnect", session: it.session, tenant: found.tenant }, again, "quiet", ` session ${it.session}`),
        this.button("Revoke", { do: "revoke", session: it.session, tenant: found.tenant }, again, "quiet", ` session ${it.session}`),
      ),
    );
  }

  rooms(found) {
    return h("ul", { class: "chips" }, found.rooms.map((it) => h("li", {},
      h("button", { class: "chip", type: "button", onclick: () => this.open("room", it.room, found.tenant) },
        it.room, it.unread ? h("span", { class: "badge" }, number(it.unread), h("span", { class: "unseen" }, " unread")) : null),
    )), found.room_count > found.rooms.length ? h("li", { class: "soft" }, `and ${found.room_count - found.rooms.length} more`) : null);
  }

  // --- a room ---

  room(found, again) {
    const typing = found.typing.length ? `typing: ${found.typing.join(", ")}` : "no user is typing";
    return h("article", { class: "found" },
      this.head(found.room, null, found.tenant, null, `${found.open ? "open to all users" : "members only"}${found.archived ? ", archived" : ""} · ${typing}`, again),
      h("div", { class: "facts" },
        fact("Head", number(found.head), "number of the last message"),
        fact("Members", number(found.member_count)),
        fact("Occupants", number(found.present_count), "users in the room now"),
        fact("Listeners", number(found.listeners), "sockets, on all nodes"),
        fact("On the bus", found.bus === "hint" ? "hints" : "content", "sent between nodes"),
        fact("Slow mode", found.slow_mode_s ? `${number(found.slow_mode_s)} s` : "off", "between two messages of a user"),
      ),
      h("div", { class: "line acts" },
        this.button(found.archived ? "Reopen" : "Archive", { do: found.archived ? "unarchive" : "archive", room: found.room, tenant: found.tenant }, again),
        this.button("Delete", { do: "delete", room: found.room, tenant: found.tenant }, again, "warning"),
      ),
      h("h3", {}, "Occupants"),
      this.people(found.present, found.present_count, found.tenant),
      h("h3", {}, "Members"),
      this.people(found.members.map((it) => it.user), found.member_count, found.tenant, found.members),
    );
  }

  people(users, count, tenant, members = null) {
    if (!users.length) return h("p", { class: "empty" }, "None.");
    return h("ul", { class: "chips" }, users.map((user, index) => {
      const role = members?.[index].role;
      return h("li", {}, h("button", { class: "chip", type: "button", onclick: () => this.open("user", user, tenant) },
        user, role && role !== "member" ? h("span", { class: "soft" }, ` ${role}`) : null));
    }), count > users.length ? h("li", { class: "soft" }, `and ${count - users.length} more`) : null);
  }

  // --- parts ---

  head(title, id, tenant, state, words, again) {
    return h("header", {},
      state ? h("span", { class: "dot", "data-state": state, "aria-hidden": "true" }) : null,
      h("div", {}, h("h2", {}, title), h("p", { class: "soft" }, [id === title ? null : id, this.who.every ? `tenant ${tenant}` : null, words].filter(Boolean).join(" · "))),
      h("button", { type: "button", class: "quiet", onclick: again }, "Refresh"),
    );
  }

  button(label, command, again, look = "", unseen = "") {
    const press = async () => {
      if (!this.who.every) delete command.tenant;
      if (await act(this.link, command)) setTimeout(() => (again(), this.list.refresh()), 700); // closed sessions have ended by then
    };
    return h("button", { type: "button", class: look || null, onclick: press },
      label, unseen ? h("span", { class: "unseen" }, unseen) : null);
  }
}

/** Replace the children and keep the focus on the same button. */
function replace(place, children) {
  const pressed = place.contains(document.activeElement) ? document.activeElement.textContent : null;
  place.replaceChildren(...children);
  if (pressed) [...place.querySelectorAll("button")].find((button) => button.textContent === pressed)?.focus();
}

function fact(label, value, note = "") {
  return h("div", { class: "fact" }, h("span", { class: "soft" }, label), h("b", {}, value), h("span", { class: "soft" }, note));
}

/** Info that the app has set. Images of other servers are not loaded: they would learn the operator’s address. */
function info(given) {
  const colour = [given.colour, given.color].find((it) => typeof it === "string" && CSS.supports("color", it));
  const swatch = colour ? h("span", { class: "swatch", "aria-hidden": "true" }) : null;
  if (swatch) swatch.style.backgroundColor = colour;
  const { avatar } = given;
  const isLink = typeof avatar === "string" && /^https?:\/\//i.test(avatar);
  return h("section", { class: "info" },
    h("h3", {}, swatch, "Info"),
    h("pre", {}, h("code", {}, JSON.stringify(given, null, 2))),
    isLink ? h("a", { href: avatar, target: "_blank", rel: "noopener noreferrer" }, "Open the avatar") : null,
  );
}

/** Return the mute or the ban of a user in the tenant as a word. */
function restrictedWord(restrictions) {
  return "ban" in restrictions ? "banned" : "mute" in restrictions ? "muted" : "no mute, no ban";
}

function restrictedUntil(restrictions) {
  const until = ("ban" in restrictions ? restrictions.ban : restrictions.mute) ?? null;
  return until === null ? "" : `until ${moment(until)}`;
}

/** Return how changes reach the watchers of a user, and the mode that the app has chosen. */
function watchWords({ watchers, presence_mode: mode }) {
  const chosen = mode === "auto" ? "" : ` (mode ${mode}, chosen by the app)`;
  return { live: "changes at once", slices: "changes in slices", asked: "they poll" }[watchers.told] + chosen;
}

function statusWords(status) {
  if (!status) return "";
  const until = status.until ? `until ${moment(status.until)}` : "";
  return [status.text, until].filter(Boolean).join(", ");
}

