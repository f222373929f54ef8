// The last minutes, as they were told: plain arrays, oldest first.

export const KEPT_S = 600;

/** Keeps what each sample said, for ten minutes. */
export class History {
  constructor() {
    this.samples = []; // {at, values}
  }

  /** A sample came; `at` in milliseconds. */
  add(at, data) {
    this.samples.push({ at, values: flat(data) });
    const first = this.samples.findIndex((sample) => sample.at > at - KEPT_S * 1000);
    if (first > 0) this.samples.splice(0, first);
  }

  get latest() {
    return this.samples.at(-1) ?? null;
  }

  /** [at, value] of one name within the last `seconds`, with null where it was not told. */
  series(name, seconds, scale = 1) {
    const end = this.latest?.at ?? 0;
    const found = [];
    for (const { at, values } of this.samples) {
      if (at < end - seconds * 1000) continue;
      const value = values[name];
      found.push([at, value === undefined ? null : value * scale]);
    }
    return found;
  }

  /** The names that begin with `prefix`, those with the most in the last `seconds` first. */
  names(prefix, seconds) {
    const totals = {};
    const end = this.latest?.at ?? 0;
    for (const { at, values } of this.samples) {
      if (at < end - seconds * 1000) continue;
      for (const [name, value] of Object.entries(values)) {
        if (name.startsWith(prefix)) totals[name] = (totals[name] ?? 0) + value;
      }
    }
    return Object.keys(totals).sort((one, other) => totals[other] - totals[one] || one.localeCompare(other));
  }
}

function flat(data) {
  const values = {};
  for (const group of ["sums", "worst", "rates", "closes"]) {
    for (const [name, value] of Object.entries(data[group] ?? {})) values[`${group}.${name}`] = value;
  }
  return values;
}
