// Names as people write them, and the ids made from them.

const ID = /^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}$/;

/** What was typed, without what only looks like a name: control characters and runs of space. */
export function cleanName(typed) {
  return typed.replace(/[\p{Cc}\u202A-\u202E\u2066-\u2069]/gu, " ").replace(/\s+/gu, " ").trim();
}

/** The id for a name: “Ann Lee” is ann-lee. The same name always gives the same id; null for an empty name. */
export function idFor(name) {
  const clean = cleanName(name);
  if (!clean) return null;
  const id = clean
    .normalize("NFKD")
    .toLowerCase()
    .replace(/\s+/gu, "-")
    .replace(/[^a-z0-9_.@=+-]/g, "")
    .replace(/^[^a-z0-9_]+|[^a-z0-9_]+$/g, "")
    .slice(0, 128);
  // Nothing remains of “李” or “🙂”: a number made from the name keeps such people apart.
  return id || `user-${hash(clean).toString(36)}`;
}

/** Whom the “watch someone” field means: a name, or an id as it is behind an @. Null if nobody can be called that. */
export function idWanted(typed) {
  const text = typed.trim();
  if (!text.startsWith("@")) return idFor(text);
  return ID.test(text.slice(1)) ? text.slice(1) : null;
}

/** One or two letters for the avatar. */
export function initials(name) {
  const words = name.split(/[\s._@=+-]+/u).filter(Boolean);
  const first = words.length > 1 ? [words[0], words.at(-1)] : [words[0] ?? "?"];
  return first.map((word) => firstLetter(word).toUpperCase()).join("");
}

/** A colour of one's own, from 0 to 359. */
export function hue(id) {
  return hash(id) % 360;
}

/** For ids nobody else will choose. */
export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const segmenter = Intl.Segmenter && new Intl.Segmenter();

function firstLetter(word) {
  // A letter may be several code points: “é” in two parts, or a family of emoji.
  const [first] = segmenter ? segmenter.segment(word.slice(0, 40)) : [{ segment: [...word][0] }];
  return first.segment;
}

function hash(text) {
  let value = 0x811c9dc5; // FNV-1a
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}
