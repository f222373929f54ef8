// The token: asked for when there is none that holds, kept as long as it does.

import { because } from "./errors.js";
import { ENDS_SOON_MS, LEAST_LEAD_MS, MOST_LEAD_MS } from "./limits.js";
import type { GreendotOptions, TokenWanted } from "./options.js";

export interface Claims {
  /** Whose it is: what is kept for one user is not for another. */
  owner: string;
  /** Milliseconds; null if it does not say. */
  expiresAt: number | null;
}

/** What a token says. Not checked: that is up to the server. */
export function claimsOf(token: string): Claims {
  try {
    const part = token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/");
    // Names beyond ASCII come out odd, and each always the same: enough to tell owners apart.
    const { tenant = "", sub = "", exp } = JSON.parse(atob(part));
    return { owner: `${tenant}/${sub}`, expiresAt: Number.isFinite(exp) ? exp * 1000 : null };
  } catch {
    return { owner: "", expiresAt: null };
  }
}

export class Tokens {
  #get: GreendotOptions["getToken"];
  #kept: string | null = null;
  #wanted: TokenWanted = "first";
  #lead = 0;
  claims: Claims = { owner: "", expiresAt: null };

  constructor(get: GreendotOptions["getToken"]) {
    this.#get = get;
  }

  /** One that holds. Null if nobody is signed in; `no_token` if it cannot be had now. `now` is the server's. */
  async current(now: number): Promise<string | null> {
    const { expiresAt } = this.claims;
    // Without an end nobody knows how long it holds: another one is asked for each time.
    if (this.#kept !== null && expiresAt !== null && expiresAt - now > ENDS_SOON_MS) return this.#kept;
    return this.renew(this.#kept === null ? this.#wanted : "expired", now);
  }

  async renew(why: TokenWanted, now: number): Promise<string | null> {
    const token = await this.#ask(why);
    this.#kept = token;
    this.claims = claimsOf(token ?? "");
    this.#wanted = "first";
    this.#lead = Math.min(Math.max(((this.claims.expiresAt ?? 0) - now) / 5, LEAST_LEAD_MS), MOST_LEAD_MS);
    return token;
  }

  /** The server does not take this one: ask for another next time. */
  forget(why: TokenWanted): void {
    this.#kept = null;
    this.#wanted = why;
  }

  /** When to bring the next one, so that the connection goes on; null if this one has no end. */
  refreshInMs(now: number, random: () => number): number | null {
    const { expiresAt } = this.claims;
    // Spread: those who came together would otherwise ask your backend together.
    return expiresAt === null ? null : Math.max(expiresAt - this.#lead * (1 + random() / 2) - now, 0);
  }

  async #ask(why: TokenWanted): Promise<string | null> {
    try {
      return (await this.#get(why)) || null;
    } catch (error) {
      throw because("no_token", "getToken failed", error);
    }
  }
}
