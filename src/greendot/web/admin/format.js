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

/** Duration: 12 s, 5 min, 3 h, 4 days. */
export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
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
