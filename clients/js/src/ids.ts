// Names as the server takes them, and keys nobody else will choose.

import { GreendotError } from "./errors.js";

const ID = /^\w[\w.@=+-]{0,127}$/;

/** `id`, if the server would take it. One that is not valid would have a whole command refused, with those beside it. */
export function validId(what: string, id: string): string {
  if (typeof id === "string" && ID.test(id)) return id;
  throw new GreendotError("bad_field", `the ${what} ${JSON.stringify(id)} is not a valid id: it must match ${ID}`);
}

/** A key nobody else will choose, for `send`. */
export function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
