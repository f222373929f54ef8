// HTTP requests. A request is sent again if it cannot take effect twice. Answers have the types of the API.

import type { Operations } from "./api.js";
import { isText, json, pathPart } from "./checks.js";
import { BadAnswer, GreendotError, InvalidArgument, problem, type Problem, RateLimited, type ServerError, Unavailable, Unreachable } from "./errors.js";

declare const VERSION: string; // defined by the build
const AGENT = `greendot-server-js/${typeof VERSION === "undefined" ? "0.0.0" : VERSION}`;

const BASE_MS = 200;
const CAP_MS = 5_000;
const MOST_DETAIL = 500; // characters of a response that is no problem document
const MOST_TIMER_MS = 2 ** 31 - 1;
/** Errors before a request was sent: codes of Node, Bun and Deno. */
const NOT_SENT = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;
/** Reads and revocations with POST. Both have the same effect when they are sent again. */
const SAFE_POSTS = new Set<string>(["POST /v1/presence/query", "POST /v1/tokens/revoke"]);

/** Address of the server, and limits of the requests. */
export interface HttpOptions {
  /** Address of the server, such as `http://127.0.0.1:8000`. */
  url: string;
  /** API key of the tenant. */
  apiKey?: string;
  /** Limit of one attempt in milliseconds, from the connect to the end of the answer. The default is 10,000. */
  timeoutMs?: number;
  /** Attempts after the first one. The default is 2. */
  retries?: number;
  /** Signal that ends the running calls. They fail with the reason of the signal. */
  signal?: AbortSignal;
  /** Function for the requests, for proxies and certificates of your own. The default is the global `fetch`. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
}

/** Request of an operation: parts of its path, its query and its body. */
export type RequestOf<Name extends keyof Operations> = Operations[Name]["request"];
export type AnswerOf<Name extends keyof Operations> = Operations[Name]["answer"];

interface Given {
  path?: object;
  query?: object;
  body?: unknown;
}

export class Http {
  readonly url: string;
  readonly #key: string;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #signal: AbortSignal | undefined;
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;

  constructor({ url, apiKey = "", timeoutMs = 10_000, retries = 2, signal, fetch }: HttpOptions) {
    this.url = checkedUrl(url);
    // The runtime's own error would quote the key.
    if (!isText(apiKey) || !/^([\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?)?$/.test(apiKey)) {
      throw new InvalidArgument("apiKey has spaces around it, a line break, or characters that no header can carry; trim it");
    }
    if (!(timeoutMs > 0)) throw new InvalidArgument("timeoutMs is a number of milliseconds above 0");
    if (!(retries >= 0)) throw new InvalidArgument("retries is a number of attempts after the first: 0 or more");
    this.#key = apiKey;
    this.#timeoutMs = Math.min(timeoutMs, MOST_TIMER_MS); // also Infinity
    this.#retries = retries;
    this.#signal = signal;
    this.#fetch = fetch ?? ((target, init) => globalThis.fetch(target, init));
  }

  /** Send the request of an operation, with retries. Return the answer; undefined if it has no content. */
  async call<Name extends keyof Operations>(name: Name, given: RequestOf<Name>): Promise<unknown> {
    const request = this.#request(name, given);
    const isRepeatable = isIdempotent(name, given);
    for (let failures = 1; ; failures++) {
      this.#signal?.throwIfAborted();
      const result = await this.#attempt(request);
      if ("answer" in result) return result.answer;
      const { error, mayHaveEffect } = result;
      const waitMs = !mayHaveEffect || isRepeatable ? this.#delay(failures, error.retryAfter) : null;
      if (waitMs === null || !isTemporary(error)) throw error;
      await this.#sleep(waitMs);
    }
  }

  #request(name: string, { path, query, body }: Given): { url: string; init: RequestInit } {
    const [method, template] = name.split(" ") as [string, string];
    const parts = (path ?? {}) as Record<string, unknown>;
    const filled = template.replace(/{(\w+)}/g, (_, part: string) => pathPart(part, parts[part]));
    const asked = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
    const search = asked.length ? `?${new URLSearchParams(asked.map(([key, value]) => [key, String(value)]))}` : "";
    const headers: Record<string, string> = { "User-Agent": AGENT };
    if (this.#key) headers["Authorization"] = `Bearer ${this.#key}`;
    const init: RequestInit = { method, headers, redirect: "manual" }; // the key is only for this server
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = json(body);
    }
    return { url: this.url + filled + search, init };
  }

  /** Send a request once. Return the answer, or the error and whether the server may have carried out the request. */
  async #attempt({ url, init }: { url: string; init: RequestInit }): Promise<{ answer: unknown } | { error: ServerError; mayHaveEffect: boolean }> {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), this.#timeoutMs);
    const abort = () => controller.abort();
    this.#signal?.addEventListener("abort", abort);
    try {
      const response = await this.#fetch(url, { ...init, signal: controller.signal });
      const text = await response.text();
      if (response.ok) return { answer: this.#read(response, text) };
      const error = this.#problem(response, text);
      return { error, mayHaveEffect: !(error instanceof RateLimited) };
    } catch (error) {
      if (error instanceof GreendotError) throw error;
      this.#signal?.throwIfAborted();
      if (controller.signal.aborted) return { error: new Unreachable(`no answer of ${this.url} within ${this.#timeoutMs} ms`), mayHaveEffect: true };
      const code = codeOf(error);
      const wasSent = !NOT_SENT.test(code);
      // The original error is left out, because those of some runtimes hold the request with its key.
      const words = wasSent ? `the answer of ${this.url} was lost` : `no server answers at ${this.url}`;
      return { error: new Unreachable(`${words} (${code})`), mayHaveEffect: wasSent };
    } finally {
      clearTimeout(timer);
      this.#signal?.removeEventListener("abort", abort);
    }
  }

  #read({ status }: Response, text: string): unknown {
    if (status === 204 || status === 202) return undefined;
    try {
      const answer: unknown = JSON.parse(text);
      if (typeof answer === "object" && answer !== null) return answer;
    } catch {
      // Below: an answer that is no JSON is as unknown as one that is no object.
    }
    throw unreadable(this.url, status);
  }

  #problem(response: Response, text: string): Problem {
    const { status, headers } = response;
    let said: { title?: unknown; detail?: unknown; code?: unknown } = {};
    try {
      said = Object(JSON.parse(text));
    } catch {
      // The listener, or a proxy in front of it, answers in plain text.
      const isPage = /^\s*</.test(text);
      said = { detail: isPage ? `the answer is a page; check that ${this.url} is the address of a Greendot server` : text.slice(0, MOST_DETAIL).trim() };
    }
    if (status < 400) said.detail = "the server redirects to another address, which the SDK does not follow; pass that address as url";
    const textOr = (value: unknown, other: string) => (isText(value) ? value : other);
    const code = isText(said.code) ? said.code : undefined;
    return problem(status, textOr(said.title, response.statusText), textOr(said.detail, ""), code, secondsOf(headers.get("Retry-After")));
  }

  /** Return the milliseconds before the next attempt; null if there is none. */
  #delay(failures: number, retryAfter: number | null): number | null {
    if (failures > this.#retries || (retryAfter ?? 0) * 1000 > this.#timeoutMs) return null;
    const jitter = Math.random() * Math.min(CAP_MS, BASE_MS * 2 ** Math.min(failures, 16));
    return retryAfter === null ? jitter : retryAfter * 1000 + jitter * 0.1;
  }

  #sleep(ms: number): Promise<void> {
    const signal = this.#signal;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const stop = () => {
        clearTimeout(timer);
        reject(signal!.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", stop);
        resolve();
      }, ms);
      signal?.addEventListener("abort", stop, { once: true });
    });
  }
}

/** Return the error for a response that is not from the API. */
export function unreadable(url: string, status: number): BadAnswer {
  return new BadAnswer(`cannot read the answer of ${url}; check that this is the address of a Greendot server`, status);
}

function checkedUrl(url: unknown): string {
  const wrong = "the address of a server is like http://127.0.0.1:8000, without a user or a query";
  let parsed: URL;
  try {
    parsed = new URL(url as string);
  } catch {
    throw new InvalidArgument(wrong); // the error of the runtime shows the address, which may contain a password
  }
  const { protocol, username, password, search, hash } = parsed;
  if (!/^https?:$/.test(protocol) || username || password || search || hash) throw new InvalidArgument(wrong);
  return parsed.href.replace(/\/+$/, "");
}

/** Return whether a request has no second effect when it is sent again. */
function isIdempotent(name: string, { body }: Given): boolean {
  if (!/^(POST|PATCH) /.test(name) || SAFE_POSTS.has(name)) return true;
  if (name === "POST /v1/signals") return false; // its key replaces waiting signals, and does not prevent a second one
  const { key, notifications } = Object(body) as { key?: unknown; notifications?: { key?: unknown }[] };
  return Array.isArray(notifications) ? notifications.every((one) => one.key) : Boolean(key);
}

function isTemporary(error: ServerError): boolean {
  return error instanceof Unreachable || error instanceof RateLimited || error instanceof Unavailable;
}

/** Return the code of an error of `fetch`, such as ECONNREFUSED; else the text of its cause, such as `bad port`, or its name. */
function codeOf(error: unknown, isCause = false): string {
  const { code, cause, name, message } = Object(error) as { code?: unknown; cause?: unknown; name?: unknown; message?: unknown };
  if (isText(code)) return code;
  if (isText(message) && /connection refused/i.test(message)) return "ECONNREFUSED"; // Deno
  return cause ? codeOf(cause, true) : String((isCause && message) || name || "error");
}

/** Return the seconds of a Retry-After. A date, as some proxies send, is left to the backoff: it is of another clock. */
function secondsOf(text: string | null): number | null {
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
}
