// Texts to show for typing users and for the last-seen time.

/** Text, or texts by the categories of Intl.PluralRules. `{n}` is replaced by the number. */
export type Plural = string | (Partial<Record<Intl.LDMLPluralRule, string>> & { other: string });

/** Texts of `typingText`. `{0}` and `{1}` are replaced by names, `{n}` by the number of typers. */
export interface TypingWords {
  one: string;
  two: string;
  /** More than two. */
  several: Plural;
  /** One or two typers without known names, as in large rooms. */
  some: Plural;
}

const ENGLISH: TypingWords = {
  one: "{0} is typing…",
  two: "{0} and {1} are typing…",
  several: "several people are typing…",
  some: { one: "someone is typing…", other: "{n} people are typing…" },
};

/**
 * Return "Alice is typing…", "Alice and Bob are typing…" or "several people are typing…"; empty without typers. `count`
 * is the number of typers if it exceeds the names, as in large rooms. `words` are texts in another language, with the
 * plurals of `locale`.
 */
export function typingText(
  names: readonly string[],
  count = names.length,
  { locale = "en", words = ENGLISH }: { locale?: string; words?: TypingWords } = {},
): string {
  const all = Math.max(names.length, count);
  if (!all) return "";
  const form = all > 2 ? words.several : names.length < all ? words.some : all === 1 ? words.one : words.two;
  const text = typeof form === "string" ? form : (form[new Intl.PluralRules(locale).select(all)] ?? form.other);
  // One pass, because a name may look like a placeholder.
  return text.replace(/\{([01n])\}/g, (_, what: string) => (what === "n" ? String(all) : names[Number(what)]!));
}

// Literals, because bundlers keep an unused array that computes its elements.
const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000_000], // 365 days
  ["month", 2_592_000_000], // 30 days
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];

/**
 * Return "just now" or "5 minutes ago" in the language of `locale`; empty if `at` is null. `now` is `client.now()`. A
 * time in the future, caused by differing clocks, counts as just now.
 */
export function lastSeenText(
  at: number | null,
  now: number,
  { locale = "en", justNow = "just now" }: { locale?: string; justNow?: string } = {},
): string {
  if (at === null) return "";
  const passed = now - at;
  const step = STEPS.find(([, size]) => passed >= size);
  if (!step) return justNow;
  return new Intl.RelativeTimeFormat(locale).format(-Math.floor(passed / step[1]), step[0]);
}

/** Return the milliseconds until the result of `lastSeenText` changes; null if it never changes. */
export function lastSeenNext(at: number | null, now: number): number | null {
  if (at === null) return null;
  const passed = Math.max(now - at, 0);
  const index = STEPS.findIndex(([, size]) => passed >= size);
  const size = index < 0 ? 60_000 : STEPS[index]![1];
  const next = size - (passed % size);
  // "12 months ago" becomes "1 year ago" before its month is over, because 12 × 30 days are less than a year.
  const larger = index > 0 ? STEPS[index - 1]![1] - passed : Infinity;
  return Math.min(next, larger) + Math.max(at - now, 0);
}
