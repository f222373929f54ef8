// Samples of the last ten minutes, oldest first.

export const KEPT_S = 600;

/** Store of samples. */
export class History {
  constructor() {
    this.samples = []; // {at, values}
  }

  /** Add a sample; `at` is in milliseconds. */
  add(at, data) {
    this.samples.push({ at, values: flat(data) });
    const first = this.samples.findIndex((sample) => sample.at > at - KEPT_S * 1000);
    if (first > 0) this.samples.splice(0, first);
  }

  get latest() {
    return this.samples.at(-1) ?? null;
  }

  /** Return [at, value] of one name within the last `seconds`, with null for samples without it. */
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

  /** Return the names that begin with `prefix`, largest total of the last `seconds` first. */
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
