// Checks of arguments. They run before a request, because a wrong part of a path would name another path.

import { InvalidArgument } from "./errors.js";

const ID = /^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}$/;

export function isText(text: unknown): text is string {
  return typeof text === "string";
}

/** Return `id` if it may name a user, room, session or key. */
export function checkedId(what: string, id: unknown): string {
  if (isText(id) && ID.test(id)) return id;
  throw new InvalidArgument(`${what} is not a valid id: 1 to 128 of the characters A-Z a-z 0-9 _ . @ = + - and not starting with a sign or dot`);
}

/** Return a part of a path: an id, the number of a message, or a reaction. */
export function pathPart(name: string, value: unknown): string {
  if (name === "seq") {
    if (!Number.isSafeInteger(value) || (value as number) < 0) throw new InvalidArgument("seq is the number of a message: a whole number");
    return String(value);
  }
  if (name !== "reaction") return checkedId(name, value);
  // In a path, slashes and parts that have only dots have another meaning, encoded or not.
  if (!isText(value) || /^\.*$|\//.test(value)) throw new InvalidArgument("a reaction must not be empty, have only dots, or have a slash");
  if (!isStorable(value)) throw new InvalidArgument("a reaction must have no NUL and no half of a surrogate pair");
  return encodeURIComponent(value);
}

/** Return whether stores and frames can hold the text: no NUL, and no half of a surrogate pair. */
export function isStorable(text: string): boolean {
  return !/\0|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

/** Return the value as JSON. */
export function json(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    // The message of the error names the cause, such as a BigInt or a cycle, and quotes no content.
    throw new InvalidArgument(`the content cannot be written as JSON (${(error as Error).name}); pass plain objects, texts and numbers`);
  }
}
