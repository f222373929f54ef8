// Samples of the last hour, oldest first: one a second for ten minutes, before that one in ten seconds.

export const KEPT_S = 3600;
const FINE_S = 600;
const COARSE_MS = 10_000; // the server's history has the same periods
const GAP_MS = 3_500; // a longer time without a sample interrupts the line
const COARSE_GAP_MS = 3.5 * COARSE_MS;

/** Store of samples. */
export class History {
  constructor() {
    this.samples = []; // {at, values, gap}
  }

  /** Add a sample; `at` is in milliseconds. */
  add(at, data) {
    this.samples.push({ at, values: flat(data), gap: GAP_MS });
    this.#thin(at);
  }

  /** Add the server's history where this page has no samples. */
  fill({ at, columns }) {
    const known = new Set(this.samples.map((sample) => period(sample.at)));
    const names = Object.keys(columns);
    at.forEach((time, index) => {
      if (known.has(period(time))) return;
      const values = {};
      for (const name of names) if (columns[name][index] !== null) values[name] = columns[name][index];
      this.samples.push({ at: time, values, gap: COARSE_GAP_MS });
    });
    this.samples.sort((one, other) => one.at - other.at);
  }

  get latest() {
    return this.samples.at(-1) ?? null;
  }

  /** Return [at, value, gap] of one name within the last `seconds`, with null for samples without it. */
  series(name, seconds, scale = 1) {
    const end = this.latest?.at ?? 0;
    const found = [];
    for (const { at, values, gap } of this.samples) {
      if (at < end - seconds * 1000) continue;
      const value = values[name];
      found.push([at, value === undefined ? null : value * scale, gap]);
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

  /** Remove samples older than an hour. Of older samples than ten minutes, keep the last of each ten seconds. */
  #thin(now) {
    const [oldest, fine] = [now - KEPT_S * 1000, now - FINE_S * 1000];
    const first = this.samples.findIndex((sample) => sample.at > oldest);
    if (first > 0) this.samples.splice(0, first);
    const last = this.samples.findIndex((sample) => sample.at > fine);
    const [one, other] = [this.samples[last - 2], this.samples[last - 1]];
    if (!one || !other) return;
    other.gap = COARSE_GAP_MS;
    if (period(one.at) === period(other.at)) this.samples.splice(last - 2, 1);
  }
}

function period(at) {
  return Math.floor(at / COARSE_MS);
}

function flat(data) {
  const values = {};
  for (const group of ["sums", "worst", "rates", "closes"]) {
    for (const [name, value] of Object.entries(data[group] ?? {})) values[`${group}.${name}`] = value;
  }
  return values;
}
