// Numbers and times as text.

const WHOLE = new Intl.NumberFormat("en");

/** Count or rate: 12, 1,250, 0.4, 12.5k. */
export function number(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size >= 100 || Number.isInteger(value)) return WHOLE.format(Math.round(value));
  return trim(value);
}

function trim(value) {
  return String(Math.round(value * 10) / 10);
}

/** Milliseconds: 0.4 ms, 12 ms, 1.5 s. */
export function milliseconds(value) {
  if (value === undefined || value === null) return "–";
  if (value >= 1000) return `${trim(value / 1000)} s`;
  if (value < 10) return `${Math.round(value * 100) / 100} ms`;
  return `${Math.round(value)} ms`;
}

const UNITS = [
  [86_400, "day", "days"],
  [3_600, "hour", "hours"],
  [60, "minute", "minutes"],
  [1, "second", "seconds"],
];

/** Duration as people say it: 12 seconds, 1 minute 30 seconds, 5 minutes, 1 hour 5 minutes, 4 days. */
export function spoken(ms) {
  if (ms === undefined || ms === null) return "–";
  const seconds = Math.max(0, Math.round(ms / 1000));
  const first = UNITS.findIndex(([size]) => seconds >= size);
  if (first < 0) return "less than a second";
  const [size] = UNITS[first];
  const count = Math.floor(seconds / size);
  const next = UNITS[first + 1];
  const rest = next && count < 5 ? Math.floor((seconds % size) / next[0]) : 0; // nobody says “5 days 1 hour”
  return [counted(count, UNITS[first]), rest ? counted(rest, next) : ""].filter(Boolean).join(" ");
}

function counted(count, [, one, many]) {
  return `${count} ${count === 1 ? one : many}`;
}

/** Time since an event: just now, 5 minutes ago. */
export function ago(ms) {
  if (ms === undefined || ms === null) return "–";
  return ms < 1000 ? "just now" : `${spoken(ms)} ago`;
}

/** Duration of work, which may be short: 40 ms, 1.5 s, 2 minutes. */
export function took(ms) {
  return ms < 10_000 ? milliseconds(ms) : spoken(ms);
}

/** Time of day. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** Time of day for today, otherwise date and time. */
export function moment(ms) {
  if (!ms) return "–";
  const then = new Date(ms);
  const today = then.toDateString() === new Date().toDateString();
  return today ? clock(ms) : `${then.toLocaleDateString("en-CA")} ${then.toLocaleTimeString("en-GB").slice(0, 5)}`;
}

const CODES = {
  1000: "closed normally",
  1001: "client went away",
  1002: "WebSocket protocol violated",
  1003: "binary frame",
  1005: "no close code",
  1006: "no close frame",
  1007: "invalid UTF-8",
  1009: "message too large",
  1011: "internal error",
  4000: "server stopping",
  4001: "client too slow",
  4002: "heartbeat lost",
  4003: "overloaded or over a limit",
  4004: "resync",
  4005: "token expired",
  4500: "invalid token",
  4501: "revoked",
  4502: "protocol error",
  4503: "disconnected by the operator",
  4504: "version not supported",
  4505: "resumed on another connection",
};

/** Short meaning of a close code. */
export function closeWords(code) {
  return CODES[code] ?? "closed";
}
