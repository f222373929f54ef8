// The pointers of all users on one board. A position is a signal: it is never stored, and only the latest counts.

import { Greendot } from "/greendot.js";

const EVERY_MS = 50; // 20 positions per second, with a CSS transition between them
const LIFTED_MS = 3_000; // time for which a lifted finger stays visible
const NAMES = ["Otter", "Heron", "Lynx", "Finch", "Badger", "Hare", "Newt", "Raven", "Seal", "Wren", "Fox", "Mole"];
const board = document.querySelector("#board");
const people = document.querySelector("#people");
const field = document.querySelector("#name");
const cursors = new Map(); // user, or key of an anonymous signal → element
const names = new Map(); // user → name

// Each tab is a separate user. A second window does not copy the name of this one.
let name = sessionStorage.getItem("name") ?? `${NAMES[Math.floor(Math.random() * NAMES.length)]} ${Math.floor(Math.random() * 90) + 10}`;
sessionStorage.setItem("name", name);
field.value = name;

const { url } = await (await fetch("/config.json")).json();
const client = new Greendot({
  url,
  getToken: async () => (await fetch(`/token?name=${encodeURIComponent(name)}`, { method: "POST" })).text(),
});
const room = client.room("board");
let mine = null; // own position, as fractions of the board; null if the pointer is outside

client.on("state", ({ state, reason }) => {
  document.querySelector("#connection").textContent = state === "online" ? "Connected" : (reason?.text ?? "Connecting…");
  document.querySelector("#connection").dataset.state = state;
});
// A user who enters has no positions yet: send the own one.
room.on("entered", () => say());
room.on("left", ({ user }) => forget(user));
room.on("count", () => void list());
room.on("joined", () => void list());
room.on("signal", ({ from, name: called, kind, key, body }) => {
  if (called && names.get(from) !== called) {
    names.set(from, called);
    void list();
  }
  // Without a sender: an invisible user, whose signals the server may send anonymously. The key tells such users apart.
  if (kind === "cursor") place(from ?? key, body, from === null);
  else if (kind === "point") ripple(from, body);
});
// An invisible user's signals are refused, unless the setting `invisible` of their kind allows them.
client.on("error", ({ code, message }) => {
  if (code === "forbidden") document.querySelector("#connection").textContent = `Your pointer is not shown: ${message}`;
});
void room.join();
client.connect();

// --- own pointer

/** Send the own position, at most every 50 ms. The last position is always sent. */
let waiting = null;
let last = 0;
function say() {
  if (waiting) return;
  const wait = Math.max(last + EVERY_MS - performance.now(), 0);
  waiting = setTimeout(() => {
    waiting = null;
    last = performance.now();
    // The key is the user: for a slow reader, only the latest position of each user waits.
    if (client.user) room.signal("cursor", mine, { key: client.user });
  }, wait);
}

function whereIs(event) {
  const { left, top, width, height } = board.getBoundingClientRect();
  return { x: (event.clientX - left) / width, y: (event.clientY - top) / height };
}

let leaving = null;
function be(at) {
  clearTimeout(leaving);
  mine = at;
  say();
}

board.addEventListener("pointermove", (event) => be(whereIs(event)));
board.addEventListener("pointerleave", (event) => {
  // The position of a lifted finger stays visible for a while.
  leaving = setTimeout(() => be(null), event.pointerType === "mouse" ? 0 : LIFTED_MS);
});
board.addEventListener("pointerdown", (event) => {
  if (event.target.closest("a")) return;
  be(whereIs(event));
  room.signal("point", mine); // no key: every click is delivered
  ripple(client.user, mine);
});

field.addEventListener("change", () => {
  name = field.value.trim() || name;
  field.value = name;
  sessionStorage.setItem("name", name);
  // For the server, another name is another user.
  client.close();
  for (const user of [...cursors.keys()]) forget(user);
  client.connect();
});

// --- pointers of other users

function place(user, at, anonymous = false) {
  if (!at) return forget(user);
  const cursor = cursors.get(user) ?? make(user);
  cursor.querySelector("b").textContent = anonymous ? "somebody" : (names.get(user) ?? user);
  cursor.style.setProperty("--x", at.x);
  cursor.style.setProperty("--y", at.y);
}

function make(user) {
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  cursor.dataset.user = user;
  cursor.style.setProperty("--hue", hue(user));
  cursor.innerHTML = '<svg viewBox="0 0 16 20" aria-hidden="true"><path d="M1 1v15l4.2-4 2.8 6.4 2.6-1.1-2.8-6.3H14z"/></svg><b></b>';
  cursors.set(user, cursor);
  board.append(cursor);
  return cursor;
}

function forget(user) {
  cursors.get(user)?.remove();
  cursors.delete(user);
}

function ripple(user, at) {
  const ring = document.createElement("i");
  ring.className = "ring";
  ring.style.setProperty("--hue", hue(user ?? ""));
  ring.style.setProperty("--x", at.x);
  ring.style.setProperty("--y", at.y);
  ring.addEventListener("animationend", () => ring.remove());
  board.append(ring);
}

async function list() {
  const { users, count } = await room.present({ limit: 30 }).catch(() => ({ users: [], count: 0 }));
  people.replaceChildren(
    ...users.map((user) => {
      const item = document.createElement("li");
      const called = user === client.user ? name : (names.get(user) ?? user);
      item.style.setProperty("--hue", hue(user));
      item.textContent = called[0].toUpperCase();
      item.title = user === client.user ? `${called} (you)` : called;
      item.dataset.user = user;
      return item;
    }),
  );
  if (count > users.length) people.append(Object.assign(document.createElement("li"), { textContent: `+${count - users.length}` }));
}

/** Return the colour of a user, the same on every screen. */
function hue(user) {
  let sum = 7;
  for (const letter of user) sum = (sum * 31 + letter.codePointAt(0)) % 360;
  return sum;
}
