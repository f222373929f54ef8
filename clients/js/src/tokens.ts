// The token: requested if there is no valid one, and kept until shortly before it expires.

import { because } from "./errors.js";
import { ENDS_SOON_MS, LEAST_LEAD_MS, MOST_LEAD_MS } from "./limits.js";
import type { GreendotOptions, TokenWanted } from "./options.js";

export interface Claims {
  /** Tenant and user of the token. Stored data belongs to one owner. */
  _owner: string;
  /** Time of expiry in milliseconds; null if the token has none. */
  _expiresAt: number | null;
}

/** Read the claims of a token without verification, which is the server's task. */
export function claimsOf(token: string): Claims {
  try {
    const part = token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/");
    // Non-ASCII names are decoded wrongly but consistently, which is enough to distinguish owners.
    const { tenant = "", sub = "", exp } = JSON.parse(atob(part));
    return { _owner: `${tenant}/${sub}`, _expiresAt: exp * 1000 || null };
  } catch {
    return { _owner: "", _expiresAt: null };
  }
}

export class Tokens {
  #get: GreendotOptions["getToken"];
  #kept: string | null = null;
  #wanted: TokenWanted = "first";
  _claims = claimsOf("");

  constructor(get: GreendotOptions["getToken"]) {
    this.#get = get;
  }

  /** Return a valid token, or null if no user is signed in. Fails with `no_token` if `getToken` fails. `now` is the server's time. */
  async current(now: number): Promise<string | null> {
    const { _expiresAt: expiresAt } = this._claims;
    // Without a time of expiry, a new token is requested each time.
    if (this.#kept !== null && expiresAt !== null && expiresAt - now > ENDS_SOON_MS) return this.#kept;
    return this._renew(this.#kept === null ? this.#wanted : "expired");
  }

  async _renew(why: TokenWanted): Promise<string | null> {
    const token = await this.#ask(why);
    this.#kept = token;
    this._claims = claimsOf(token ?? "");
    this.#wanted = "first";
    return token;
  }

  /** Discard the token. The next call of `current` requests another one. */
  _forget(why: TokenWanted): void {
    this.#kept = null;
    this.#wanted = why;
  }

  /** Return the delay before the token must be replaced; null if the token has no expiry. `now` is the server's time. */
  _refreshInMs(now: number, random: () => number): number | null {
    const { _expiresAt: expiresAt } = this._claims;
    if (expiresAt === null) return null;
    const left = expiresAt - now;
    const lead = Math.min(Math.max(left / 5, LEAST_LEAD_MS), MOST_LEAD_MS);
    // Random, so that clients that connected together do not call the backend together.
    return Math.max(left - lead * (1 + random() / 2), 0);
  }

  async #ask(why: TokenWanted): Promise<string | null> {
    try {
      return (await this.#get(why)) || null;
    } catch (error) {
      throw because("no_token", "getToken failed", error);
    }
  }
}
