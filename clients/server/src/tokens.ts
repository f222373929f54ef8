// Tokens for the users of an app. They are signed here; no request is sent.

import { checkedId, isStorable, isText, json } from "./checks.js";
import { InvalidArgument } from "./errors.js";

const SHORTEST_SECRET = 32; // characters; servers accept no shorter one
const MOST_INFO = 1_024; // bytes as JSON
const MOST_DEPTH = 64;
const MOST_PATTERNS = 100;
const MOST_CHARACTERS = 64 * 1024;
const PATTERN = /^[A-Za-z0-9_.@=+*-]{1,128}$/;

/** Lifetime and claims of a token. docs/protocol.md describes the claims. */
export interface TokenOptions {
  /** Seconds until the token expires. The default is 3,600. */
  ttl?: number;
  /** Name that other users see. */
  name?: string | null;
  /** Info that other users see, such as avatar and colour: at most 1,024 bytes as JSON. */
  info?: Record<string, unknown> | null;
  /** Patterns of rooms that may be joined without membership; `*` matches any characters. */
  rooms?: Iterable<string> | null;
  /** Patterns of users who may be watched. If left out, all users may be watched. */
  watch?: Iterable<string> | null;
  /** False: the user can only read. */
  send?: boolean;
  tenant?: string | null;
  /** Id of the token, for `revokeToken`. If left out, the SDK generates one. */
  jti?: string | null;
  aud?: string | string[] | null;
  iss?: string | null;
}

/**
 * Private key for tokens: PKCS #8 in PEM, a JWK or a CryptoKey. RSA keys sign RS256, P-256 keys ES256 and Ed25519 keys EdDSA.
 *
 * The type is `object`, because not all runtimes have types for JWKs and CryptoKeys.
 */
export type PrivateKey = string | object;

/** Signs tokens with a secret (HS256) or with a private key. */
export class Signer {
  private constructor(
    private readonly head: { alg: string; typ: "JWT"; kid?: string },
    private readonly key: CryptoKey,
    private readonly method: AlgorithmIdentifier | EcdsaParams,
  ) {}

  static async ofSecret(secret: string | undefined): Promise<Signer> {
    if (!isText(secret) || secret.length < SHORTEST_SECRET) {
      throw new InvalidArgument(`pass the secret that the server signs with (auth.secret), of ${SHORTEST_SECRET} characters or more, as secret`);
    }
    return new Signer({ alg: "HS256", typ: "JWT" }, await hmacKey(secret), "HMAC");
  }

  static async ofPrivateKey(given: PrivateKey, keyId: string | undefined): Promise<Signer> {
    const { alg, source } = described(given);
    const { imported, method } = ALGORITHMS[alg];
    let key: CryptoKey;
    try {
      if (source instanceof Uint8Array) key = await crypto.subtle.importKey("pkcs8", source as BufferSource, imported, false, ["sign"]);
      else if ("kty" in source) key = await crypto.subtle.importKey("jwk", source, imported, false, ["sign"]);
      else key = source as CryptoKey;
    } catch (error) {
      throw new InvalidArgument(`privateKey is no usable ${alg} key (${(error as Error).name}); pass a private key in PKCS #8 or as a JWK`);
    }
    const kid = keyId ?? (source as { kid?: string }).kid;
    return new Signer({ alg, typ: "JWT", ...(kid === undefined ? {} : { kid }) }, key, method);
  }

  /** Return a signed token. */
  async token(user: string, options: TokenOptions): Promise<string> {
    const text = `${part(this.head)}.${part(claimsOf(user, options))}`;
    const signature = await crypto.subtle.sign(this.method, this.key, bytes(text) as BufferSource);
    const token = `${text}.${base64url(new Uint8Array(signature))}`;
    if (token.length > MOST_CHARACTERS) throw new InvalidArgument(`the token is longer than ${MOST_CHARACTERS} characters; give fewer claims`);
    return token;
  }
}

/**
 * Return the key that signs with a secret.
 * @internal
 */
export function hmacKey(secret: string): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes(secret) as BufferSource, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

export const bytes = (text: string) => new TextEncoder().encode(text);

export const hex = (data: Uint8Array) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Return random text for a key or an id. */
export const randomHex = (count: number) => hex(crypto.getRandomValues(new Uint8Array(count)));

type Algorithm = "RS256" | "ES256" | "EdDSA";
const ALGORITHMS: Record<Algorithm, { imported: RsaHashedImportParams | EcKeyImportParams | AlgorithmIdentifier; method: AlgorithmIdentifier | EcdsaParams }> = {
  RS256: { imported: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" }, method: "RSASSA-PKCS1-v1_5" },
  ES256: { imported: { name: "ECDSA", namedCurve: "P-256" }, method: { name: "ECDSA", hash: "SHA-256" } },
  EdDSA: { imported: { name: "Ed25519" }, method: "Ed25519" },
};
/** Identifiers of algorithms in PKCS #8, in hexadecimal. */
const IDENTIFIERS: [string, Algorithm][] = [
  ["06092a864886f70d010101", "RS256"],
  ["06082a8648ce3d030107", "ES256"],
  ["06032b6570", "EdDSA"],
];
/** Types of JWKs and of CryptoKeys. */
const FAMILIES: Record<string, Algorithm> = {
  RSA: "RS256",
  "EC P-256": "ES256",
  "OKP Ed25519": "EdDSA",
  "RSASSA-PKCS1-v1_5 SHA-256": "RS256",
  "ECDSA P-256": "ES256",
  Ed25519: "EdDSA",
};
const WRONG_KEY = "privateKey is an RSA, P-256 or Ed25519 key: PKCS #8 in PEM (BEGIN PRIVATE KEY), a JWK or a CryptoKey";

function described(given: PrivateKey): { alg: Algorithm; source: Uint8Array | JsonWebKey | CryptoKey } {
  if (isText(given)) {
    const der = derOf(given);
    const alg = IDENTIFIERS.find(([identifier]) => hex(der.subarray(0, 40)).includes(identifier))?.[1];
    if (alg !== undefined) return { alg, source: der };
  } else if (given && "kty" in given) {
    const key = given as JsonWebKey;
    const alg = FAMILIES[[key.kty, key.crv].filter(Boolean).join(" ")];
    if (alg !== undefined) return { alg, source: key };
  } else if (given && "algorithm" in given && "usages" in given) {
    const key = given as CryptoKey;
    const { name, hash, namedCurve } = key.algorithm as RsaHashedKeyAlgorithm & EcKeyAlgorithm;
    const alg = FAMILIES[[name, namedCurve ?? hash?.name].filter(Boolean).join(" ")];
    if (alg !== undefined && key.usages.includes("sign")) return { alg, source: key };
  }
  throw new InvalidArgument(WRONG_KEY);
}

/** Return the bytes of a key in PEM. If the text has another form, the result is empty. */
function derOf(pem: string): Uint8Array {
  const text = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(pem)?.[1] ?? "";
  try {
    return Uint8Array.from(atob(text.replace(/\s/g, "")), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array(); // no base64
  }
}

const KNOWN = new Set(["ttl", "name", "info", "rooms", "watch", "send", "tenant", "jti", "aud", "iss"]);

/** Return the claims of a token. Claims that every server would refuse fail here, not later for a user. */
function claimsOf(user: string, options: TokenOptions): Record<string, unknown> {
  // An unknown option may be a misspelt `ttl`, `send` or `rooms`, and would grant too much.
  const unknown = Object.keys(options).find((name) => !KNOWN.has(name));
  if (unknown !== undefined) throw new InvalidArgument(`token has no option ${unknown}; it has ${[...KNOWN].join(", ")}`);
  const { ttl = 3_600, rooms, watch, ...rest } = options;
  if (typeof ttl !== "number" || !(ttl > 0 && ttl < 1e10)) throw new InvalidArgument("ttl is the number of seconds until the token ends, above 0");
  checkText("name", rest.name);
  checkText("jti", rest.jti);
  if (rest.tenant !== undefined && rest.tenant !== null) checkedId("tenant", rest.tenant);
  if (rest.send !== undefined && typeof rest.send !== "boolean") throw new InvalidArgument("send is true or false");
  checkInfo(rest.info);
  const now = Date.now() / 1000;
  const claims = {
    sub: checkedId("user", user),
    iat: now, // with milliseconds: a revocation before this second must not include the token
    exp: Math.round(now + Math.max(ttl, 1)),
    ...rest,
    jti: rest.jti ?? randomHex(8),
    rooms: patterns("rooms", rooms),
    watch: patterns("watch", watch),
  };
  return Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== undefined && value !== null));
}

function checkText(name: string, value: unknown): void {
  if (value === undefined || value === null) return;
  if (!isText(value) || [...value].length > 200 || !isStorable(value)) {
    throw new InvalidArgument(`${name} is a text of at most 200 characters, without NUL and without halves of surrogate pairs`);
  }
}

function patterns(name: string, value: Iterable<string> | null | undefined): string[] | undefined {
  if (value === undefined || value === null) return undefined;
  const all = isText(value) || typeof Object(value)[Symbol.iterator] !== "function" ? null : [...value];
  if (all === null || all.length > MOST_PATTERNS || !all.every((one) => isText(one) && PATTERN.test(one))) {
    throw new InvalidArgument(`${name} is a list of at most ${MOST_PATTERNS} patterns, each 1 to 128 of the characters A-Z a-z 0-9 _ . @ = + - *`);
  }
  return all;
}

function checkInfo(info: unknown): void {
  if (info === undefined || info === null) return;
  if (typeof info !== "object" || Array.isArray(info)) throw new InvalidArgument("info is an object, for example with avatar and colour");
  const text = json(info);
  const size = bytes(text).length;
  if (size > MOST_INFO) throw new InvalidArgument(`info may have at most ${MOST_INFO} bytes as JSON, not ${size}; give less, such as a URL`);
  if (depthOf(info) > MOST_DEPTH) throw new InvalidArgument(`info may be nested at most ${MOST_DEPTH} levels deep`);
  if (/\\ud[89a-f]/i.test(text)) throw new InvalidArgument("info must have no halves of surrogate pairs");
}

/** Return the number of nested levels of a value that can be written as JSON. */
function depthOf(value: unknown): number {
  return typeof value === "object" && value !== null ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0;
}

const part = (value: object) => base64url(bytes(json(value)));

function base64url(data: Uint8Array): string {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
