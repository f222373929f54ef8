// What happens while the plug is out, told as it happens. Pure: words from figures.

/** When others see somebody who was cut off go offline, in seconds. */
export function noticedAfter(how, periods) {
  return how === "cut" ? periods.grace_s : periods.dead_after_s + periods.silent_grace_s;
}

/** `away` is in seconds; `other` says whether another device of the same person is connected. */
export function whileAway(how, away, periods, other) {
  const end = noticedAfter(how, periods);
  const began = how === "cut" ? `Cut ${away} s ago` : `Silent for ${away} s`;
  if (other) return `${began}. Your other device keeps you online for everybody.`;
  const left = Math.max(0, Math.ceil(end - away));
  if (left === 0) return `${began}. Others see you offline by now: they were told once.`;
  if (how === "silent" && away < periods.dead_after_s) {
    const notices = Math.ceil(periods.dead_after_s - away);
    return `${began}. The server has not noticed (it does in ${notices} s); others see you online for ${left} s.`;
  }
  return `${began}. The server waits for you; others still see you online for ${left} s.`;
}

/** `fetched` and `sent` are counts of messages. */
export function afterReturn(how, away, periods, { other, fetched, sent }) {
  const seen = other
    ? "your other device kept you online"
    : away < noticedAfter(how, periods)
      ? "nobody noticed"
      : "others saw you leave once and return";
  const done = [fetched && `${count(fetched, "message")} fetched`, sent && `${count(sent, "message")} of yours sent`];
  const tail = done.filter(Boolean).join(", ");
  return `Back after ${away} s: ${seen}.${tail ? ` ${tail[0].toUpperCase()}${tail.slice(1)}.` : ""}`;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
