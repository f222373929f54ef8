// Names of users, and the ids made from them.

const ID = /^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}$/;

/** Return the typed name without control characters and repeated spaces. */
export function cleanName(typed) {
  return typed.replace(/[\p{Cc}\u202A-\u202E\u2066-\u2069]/gu, " ").replace(/\s+/gu, " ").trim();
}

/** Return the id for a name: “Ann Lee” is ann-lee. The same name always gives the same id; null for an empty name. */
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
  // No character of “李” or “🙂” is allowed in an id: a hash of the name gives different users different ids.
  return id || `user-${hash(clean).toString(36)}`;
}

/** Return the id for the text of the watch field: a name, or @ and an id. Null if the text is neither. */
export function idWanted(typed) {
  const text = typed.trim();
  if (!text.startsWith("@")) return idFor(text);
  return ID.test(text.slice(1)) ? text.slice(1) : null;
}

/** Return one or two letters for the avatar. */
export function initials(name) {
  const words = name.split(/[\s._@=+-]+/u).filter(Boolean);
  const first = words.length > 1 ? [words[0], words.at(-1)] : [words[0] ?? "?"];
  return first.map((word) => firstLetter(word).toUpperCase()).join("");
}

/** Return the user's hue, from 0 to 359. */
export function hue(id) {
  return hash(id) % 360;
}

/**
 * Return hue and letters of an avatar: those of the info that the app has set, else those of the id and the name. The
 * avatar of the info is shown if it is short, such as an emoji. Images of other servers are not loaded.
 */
export function avatarOf(id, name, info) {
  const { avatar, colour } = info ?? {};
  const isShort = typeof avatar === "string" && avatar.length > 0 && avatar.length <= 8;
  return { hue: hueOf(colour) ?? hue(id), letters: isShort ? avatar : initials(name) };
}

/** Return the hue of a colour such as #06f or #0066ff; null for anything else. */
function hueOf(colour) {
  const digits = /^#(?:[0-9a-f]{3}){1,2}$/i.test(colour) && colour.slice(1);
  if (!digits) return null;
  const [red, green, blue] = digits.match(digits.length === 3 ? /./g : /../g).map((one) => parseInt(one.length === 1 ? one + one : one, 16));
  const [most, least] = [Math.max(red, green, blue), Math.min(red, green, blue)];
  if (most === least) return null;
  const sixth = most === red ? (green - blue) / (most - least) : most === green ? 2 + (blue - red) / (most - least) : 4 + (red - green) / (most - least);
  return Math.round((sixth * 60 + 360) % 360);
}

/** Return a random id of 96 bits. */
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
