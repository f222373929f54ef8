// Times in words. All are milliseconds UTC of the server's clock.

const STEPS = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });
const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

let ahead = 0; // how far the server's clock is ahead of this one

export function setServerTime(now) {
  ahead = now - Date.now();
}

/** “5 minutes ago”. Less than a minute is “just now”, and so is a future that only differing clocks can show. */
export function ago(time) {
  const passed = Date.now() + ahead - time;
  const step = STEPS.find(([, size]) => passed >= size);
  return step ? relative.format(-Math.floor(passed / step[1]), step[0]) : "just now";
}

/** The local time of the day, with the day unless it is today. */
export function clock(time) {
  const date = new Date(time);
  return (date.toDateString() === new Date().toDateString() ? hours : days).format(date);
}

/** Local date and time to the second. */
export function exact(time) {
  return whole.format(new Date(time));
}
