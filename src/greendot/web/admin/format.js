// Numbers and times as people read them.

const WHOLE = new Intl.NumberFormat("en");

/** A count or a rate: 12, 1,250, 0.4, 12.5k. */
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

/** How long: 12 s, 5 min, 3 h, 4 days. */
export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** The time of day. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** A moment: the time if it is today's, else with its date. */
export function moment(ms) {
  if (!ms) return "–";
  const then = new Date(ms);
  const today = then.toDateString() === new Date().toDateString();
  return today ? clock(ms) : `${then.toLocaleDateString("en-CA")} ${then.toLocaleTimeString("en-GB").slice(0, 5)}`;
}

const CODES = {
  1000: "closed normally",
  1001: "page left",
  1002: "broke the WebSocket protocol",
  1003: "sent binary",
  1005: "closed without a code",
  1006: "socket lost",
  1007: "not UTF-8",
  1009: "too large",
  1011: "failed here",
  4000: "draining",
  4001: "too slow",
  4002: "heartbeat lost",
  4003: "overloaded",
  4004: "resync",
  4005: "token expired",
  4500: "bad token",
  4501: "revoked",
  4502: "protocol error",
  4503: "disconnected by an operator",
  4504: "version not supported",
  4505: "replaced by a resume",
};

/** What a close code means, in a few words. */
export function closeWords(code) {
  return CODES[code] ?? "closed";
}
