// Texts during and after a simulated outage. Pure functions.

/** Return the seconds until other users see a disconnected user offline. */
export function noticedAfter(how, periods) {
  return how === "cut" ? periods.grace_s : periods.dead_after_s + periods.silent_grace_s;
}

/** Return the text during an outage. `away` is in seconds; `other`: another device of the user is connected. */
export function whileAway(how, away, periods, other) {
  const end = noticedAfter(how, periods);
  const began = how === "cut" ? `Cut ${away} s ago` : `Silent for ${away} s`;
  if (other) return `${began}. Your other device keeps you online.`;
  const left = Math.max(0, Math.ceil(end - away));
  if (left === 0) return `${began}. Other users now see you offline. They received one update.`;
  if (how === "silent" && away < periods.dead_after_s) {
    const notices = Math.ceil(periods.dead_after_s - away);
    return `${began}. The server notices in ${notices} s. Other users see you online for ${left} s.`;
  }
  return `${began}. The server keeps your session. Other users see you online for ${left} s.`;
}

/** Return the text after an outage. `fetched` and `sent` are counts of messages. */
export function afterReturn(how, away, periods, { other, fetched, sent }) {
  const seen = other
    ? "your other device kept you online"
    : away < noticedAfter(how, periods)
      ? "other users saw no change"
      : "other users saw you go offline once and return";
  const done = [fetched && `${count(fetched, "message")} fetched`, sent && `${count(sent, "waiting message")} sent`];
  const tail = done.filter(Boolean).join(", ");
  return `Back after ${away} s: ${seen}.${tail ? ` ${tail[0].toUpperCase()}${tail.slice(1)}.` : ""}`;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
