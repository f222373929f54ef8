// Validation of ids, and random keys.

import { GreendotError } from "./errors.js";

const ID = /^\w[\w.@=+-]{0,127}$/;

/** Return `id` if it is valid, else throw. The server refuses a whole command for one invalid id. */
export function validId(what: string, id: string): string {
  if (typeof id === "string" && ID.test(id)) return id;
  throw new GreendotError("bad_field", `the ${what} ${JSON.stringify(id)} is not a valid id: it must match ${ID}`);
}

/** Generate a unique key for `send`. */
export function newKey(): string {
  return crypto.getRandomValues(new Uint32Array(3)).join("");
}
