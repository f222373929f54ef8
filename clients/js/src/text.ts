// Words to show: who is typing, when somebody was last there.

/** `{n}` is a number; the keys are those of Intl.PluralRules. */
export type Plural = string | (Partial<Record<Intl.LDMLPluralRule, string>> & { other: string });

/** The words of `typingText`. `{0}` and `{1}` are names, `{n}` how many there are. */
export interface TypingWords {
  one: string;
  two: string;
  /** More than two. */
  several: Plural;
  /** One or two whose names are not known, as in large rooms. */
  some: Plural;
}

const ENGLISH: TypingWords = {
  one: "{0} is typing…",
  two: "{0} and {1} are typing…",
  several: "several people are typing…",
  some: { one: "someone is typing…", other: "{n} people are typing…" },
};

/**
 * "Alice is typing…", "Alice and Bob are typing…", "several people are typing…"; empty when nobody does. `count` where it
 * is more than the names, as in large rooms. `words` are for other languages, with the plurals of `locale`.
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
  // In one go: a name may look like a placeholder.
  return text.replace(/\{([01n])\}/g, (_, what: string) => (what === "n" ? String(all) : names[Number(what)]!));
}

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 365 * 86_400_000],
  ["month", 30 * 86_400_000],
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];

/**
 * "just now", "5 minutes ago", in the words of `locale`; empty where it is not known. `now` is `client.now()`. A future
 * that only differing clocks can show is just now.
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

/** After how many milliseconds `lastSeenText` says something else; null where it never does. */
export function lastSeenNext(at: number | null, now: number): number | null {
  if (at === null) return null;
  const passed = Math.max(now - at, 0);
  const index = STEPS.findIndex(([, size]) => passed >= size);
  const size = index < 0 ? 60_000 : STEPS[index]![1];
  const next = size - (passed % size);
  // "11 months ago" becomes "1 year ago" before its twelfth month is over.
  const larger = index > 0 ? STEPS[index - 1]![1] - passed : Infinity;
  return Math.min(next, larger) + Math.max(at - now, 0);
}
