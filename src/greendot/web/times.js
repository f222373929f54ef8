// Times as text. All times are milliseconds UTC of the server's clock.

import { lastSeenNext, lastSeenText } from "./greendot.js";

const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

let ahead = 0; // milliseconds that the server's clock is ahead of this one

export function setServerTime(time) {
  ahead = time - Date.now();
}

export function now() {
  return Date.now() + ahead;
}

/** Return a text such as “5 minutes ago”. */
export function ago(time) {
  return lastSeenText(time, now());
}

/** Return the milliseconds until the text of `ago` changes. */
export function agoNext(time) {
  return lastSeenNext(time, now());
}

/** Return the local time of day, with the date unless it is today. */
export function clock(time) {
  return (isSameDay(time, Date.now()) ? hours : days).format(new Date(time));
}

/** Return the local time of day. */
export function hour(time) {
  return hours.format(new Date(time));
}

/** Return the local date and time to the second. */
export function exact(time) {
  return whole.format(new Date(time));
}

/** Return “Today”, “Yesterday” or a date such as “Monday, 3 March”. */
export function day(time) {
  if (isSameDay(time, Date.now())) return "Today";
  const yesterday = new Date();
  yesterday.setDate(yesterday.getDate() - 1);
  return isSameDay(time, yesterday) ? "Yesterday" : weekday.format(new Date(time));
}

export function isSameDay(one, other) {
  return new Date(one).toDateString() === new Date(other).toDateString();
}
